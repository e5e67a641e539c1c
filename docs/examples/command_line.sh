#!/usr/bin/env bash
# Send lines of a file, give a worker its claim, acknowledge it, and look at the history: all from a shell.
set -euo pipefail
export LEDGER_ROOT=./shop

printf 'first order\nsecond order\nthird order\n' > orders.txt
ledger queues create orders -a VisibilityTimeout=600
ledger send orders orders.txt

receipt=$(ledger receive orders --all --claim --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["receipt"])')
ledger sql "SELECT owner, messages, seconds_left FROM in_flight"
ledger delete orders --receipt "$receipt"

ledger history orders
test "$(ledger sql "SELECT count(*) AS n FROM messages WHERE status = 'deleted'" --json)" = '{"n": 3}'
