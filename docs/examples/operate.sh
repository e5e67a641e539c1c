#!/usr/bin/env bash
# A night of an operator: look, keep small, back up, restore the copy elsewhere, and remove it again.
set -euo pipefail
export LEDGER_ROOT=./shop

ledger queues create orders
seq 100 | ledger send orders -

ledger doctor
ledger upkeep
ledger backup ./backups/tonight
ledger doctor ./backups/tonight

ledger restore-backup ./backups/tonight ./drill
ledger doctor ./drill --deep
test "$(ledger sql "SELECT count(*) AS n FROM messages" --root ./drill --json)" = '{"n": 100}'
ledger destroy ./drill --yes
