"""How the store keeps queues in Delta tables. Read this first.

**Words.** A *segment* is a series of messages from one writer: a task of a bulk send, or a process that appends small
sends. A message's id is `(segment, seq)`. Its `seq` is its *ordinal*: its place in the segment. Each segment is sent to
a *lane* of its queue: a partition of the table `visibility`, the unit in which commits conflict. A *run* is `(segment,
first_seq, last_seq)`: neighbouring messages of a segment, both ends included. A message's *record* is a `Record` of
`rules.visibility`. A row of `visibility` has a run, or a *set* (only some messages of a run), and their common record.
A message without a row was never received. No row has a state such as "in flight": the store computes it from the
record, the message's times, the queue's retention, and the time.

A lane's *head row* (its segment is '') has no messages. Its `revision` counts the lane's commits, and its `received_at`
is the time of the last one. In memory a record is a *code*, a small number that equal records share. All messages of
the loaded lanes have places on one line of numbers, the *axis*. So a decision is arithmetic on three arrays: the
`first`, `last` and `code` of `Runs`. It lays new runs on top of the recorded ones. The difference is the *edits*: rows
to insert, update and delete, with the head row of each changed lane.

**The two laws.**

1. *Only a commit to `visibility` decides who holds a message.* Verbs only add to `messages`, and upkeep joins its files
   and drops finished segments. `receipts` is filled from the metadata of commits to `visibility`. Only the output table
   shows whether it has the rows of a `claim.write`. A send is at most one commit to `messages`, and most other verbs on
   messages are at most one to `visibility`. The word **verb** in docs/glossary.md has the exceptions.
2. *A decision reads one snapshot, and two decisions conflict if they change the head row of the same lane.* A decision
   loads whole lanes as of one version. It adds 1 to the revision of the head row of each lane that it changes. The
   second of two writers finds another revision, changes nothing, and decides again. Therefore the later of two commits
   to a lane was decided on a state that includes the earlier commit. If a decision relies on a lane that it does not
   change, its commit raises that lane's revision, too (`meeting`). Quotas, purges, and receives under one attempt id
   need this. Outside its lanes, a decision relies only on data that never changes (a sent message) or may change
   without harm. A queue to which messages move may be deleted while lanes are read. So after this read, the decision
   checks that the queue exists.

**An example.** Segment `s1` in lane 3 of the queue `work` has ten messages, 0 to 9. At 12:00:00 a receive takes six of
them for 30 s, under receipt A. It writes one row and the lane's head row, however many messages it takes::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 1
    work  3    s1         0    5  | A       1     12:00:30   -          -        | -

At 12:00:10 the holder deletes messages 2 and 3. One row is updated, and two are inserted::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 2
    work  3    s1         0    1  | A       1     12:00:30   -          -        | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          -        | -

At 12:00:40 another receive runs. By the redrive policy, a message becomes a dead letter after one receive. Messages 0,
1, 4 and 5 move to the queue `dead`, and 6 to 9 are granted under receipt B. No body is copied. The queue `dead` has 2
lanes, so `s1` is in lane 1 there: 3 modulo 2::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    dead  1    -         -1   -1  | -       -     -          -          -        | 1
    dead  1    s1         0    1  | -       1     -          -          -        | -
    dead  1    s1         4    5  | -       1     -          -          -        | -
    work  3    -         -1   -1  | -       -     -          -          -        | 3
    work  3    s1         0    1  | A       1     12:00:30   -          dead     | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          dead     | -
    work  3    s1         6    9  | B       1     12:01:10   -          -        | -

A message is *final* if nothing about it can change: it is deleted for good (also because it expired), or moved and
final in the other queue. Upkeep drops a segment of final messages: first the messages, then their rows of `visibility`.

**Scatter.** If every other message of ten is deleted, each of the two records (deleted, and not deleted) has 5 runs in
one block of 32,768 ordinals. More than 4 runs of a record in a block become one set, unless they are scattered very
thinly. A set is one row, with a bit for each ordinal from the set's first message to its last::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision bits
    wide  3    -         -1   -1  | -       -     -          -          -        | 2        -
    wide  3    s1         0    8  | A       1     12:00:30   12:00:10   -        | -        101010101
    wide  3    s1         1    9  | A       1     12:00:30   -          -        | -        101010101

In memory all messages are in runs: see `model/message_runs.py`.
"""
