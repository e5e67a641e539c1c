"""The rules of queues and of output tables: functions without effects, without a clock and without I/O.

They import only each other, the standard library and `ledger.errors`. A few functions make random ids, and all others
are pure. Instants are whole milliseconds since 1970, in UTC.

V1, F2, M3 and the like are rules of docs/reference/rules.md. "Recorded" means: the real service was seen to do so
(tests/recorded). S0, S1, S2 and S4 are texts about SQS.
"""
