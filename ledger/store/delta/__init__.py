"""How the store keeps queues in Delta tables. Read this first.

**Words.** A *segment* is a series of messages from one writer: a task of a bulk send, or a process that appends its
small sends. A message's id is `(segment, seq)`, and `seq` is its *ordinal*: its place in the segment. Every segment is
sent to a *lane* of its queue. Every lane is a partition of the table `visibility`: the unit in which commits conflict.
A *run* is `(segment, first_seq, last_seq)`: neighbouring messages of one segment, both ends included. A message's
*record* is a `Record` of `rules.state`. A row of `visibility` has a run, or a *set* (only some messages of a run), and
the one record of all these messages. A message without a row was never received. No row has a state such as "in flight"
or "visible". The store computes a message's state from its record, its times of sending and of delay, the queue's
retention, and the time.

A lane's *head row* (its segment is '') has no messages. Its `revision` counts the lane's commits, and its `received_at`
is the time of the lane's last commit. In memory a record is a *code*, a small number that equal records share. All
segments of the loaded lanes are one after the other on one line of numbers, the *axis*. Each message has its own number
on the axis. Therefore a decision is arithmetic on three arrays, the `first`, `last` and `code` of `Runs`. The decision
lays new runs on top of the recorded ones. The difference is the *edits*: the rows to insert, update and delete. The
edits include the head row of each lane that they change.

**The two laws.**

1. *Only a commit to `visibility` decides who holds a message.* Verbs only add messages to `messages`. Upkeep joins the
   files of `messages`. It drops a segment once each of its messages is *final* in every queue: nothing about the
   message can change. `receipts` is filled from the metadata of commits to `visibility`. Only the output table itself
   shows whether it has the rows of a `claim.write`. A send is at most one commit to `messages`. Most other verbs on
   messages are at most one commit to `visibility`. Each of these verbs takes effect completely or not at all. Some
   verbs take more commits. `claim.write` commits to `visibility`, to the output table, and to `visibility` again. The
   deletion of a queue commits to `queues` between two commits to `visibility`. The purge of a FIFO queue may also
   commit to `messages`. A verb that fences a write in doubt also commits to the output table.
2. *A decision reads one snapshot, and two decisions conflict if they change the head row of the same lane.* A decision
   loads whole lanes as of one version. In the head row of each lane that the decision changes, it adds 1 to the
   revision that it read. The second of two writers finds another revision, changes nothing, and decides again on the
   newer state. Therefore the later of two commits to a lane was decided on a state that includes the earlier commit. A
   decision may rely on a lane that it does not change. Then its commit raises the revision of that lane's head row, too
   (`meeting`). Quotas, purges, and receives under one attempt id need this. Outside its lanes, a decision relies only
   on data that never changes (a sent message) or may change without harm. While the lanes are read, somebody may delete
   a queue to which messages move. So after this read, the decision checks that this queue still exists.

**An example.** Segment `s1` in lane 3 of the queue `work` has ten messages, 0 to 9. Nothing is recorded yet. At
12:00:00 a receive takes six of them for 30 s, under receipt A. The receive writes one row and the lane's head row,
whether it takes six messages or six million::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 1
    work  3    s1         0    5  | A       1     12:00:30   -          -        | -

At 12:00:10 the holder deletes messages 2 and 3. The run's row is shortened by an update. Two rows are inserted, one for
the messages 2 and 3, and one for the messages 4 and 5::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 2
    work  3    s1         0    1  | A       1     12:00:30   -          -        | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          -        | -

At 12:00:40 another receive runs. The queue's redrive policy has maxReceiveCount 1: after one receive, a message moves
as a dead letter. Messages 0, 1, 4 and 5 move to the queue `dead`. Messages 6 to 9 are granted under receipt B. No body
is copied: one commit changes lanes of both queues. The queue `dead` has 2 lanes. `s1` was sent to lane 3, so in `dead`
it is in lane 1, which is 3 modulo 2::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    dead  1    -         -1   -1  | -       -     -          -          -        | 1
    dead  1    s1         0    1  | -       1     -          -          -        | -
    dead  1    s1         4    5  | -       1     -          -          -        | -
    work  3    -         -1   -1  | -       -     -          -          -        | 3
    work  3    s1         0    1  | A       1     12:00:30   -          dead     | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          dead     | -
    work  3    s1         6    9  | B       1     12:01:10   -          -        | -

Upkeep drops a segment once each of its messages is final: deleted for good, or moved and final in the other queue.
(Before that, upkeep records an expired message as deleted.) Upkeep drops the segment from `messages` first, and the
segment's rows of `visibility` after that.

**Scatter.** A queue `wide` also has ten messages, which were received at 12:00:00 under receipt A. At 12:00:10 every
other message is deleted. Now each of the two records (deleted, and not deleted) has 5 runs in one block of 32,768
ordinals. Up to 4 runs would stay rows. More than 4 runs of a record in a block become one set, unless they are
scattered very thinly. A set is one row, with a bit for each ordinal from the set's first message to its last. (In
memory all messages are in runs: see `model/run_sets.py`.) If every other message of a million is deleted, each block
takes two rows. For the ten messages, the rows are::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision bits
    wide  3    -         -1   -1  | -       -     -          -          -        | 2        -
    wide  3    s1         0    8  | A       1     12:00:30   12:00:10   -        | -        101010101
    wide  3    s1         1    9  | A       1     12:00:30   -          -        | -        101010101
"""
