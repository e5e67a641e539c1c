"""The store on Delta Lake tables: the theory of its operation. Read this first.

**Words.** A *segment* is the messages that one writer wrote: a task of a bulk send, or a process that appends its small
sends. A message's place, `(segment, seq)`, is also its id. Every segment is sent to a *lane* of its queue. Every lane
is a partition of the table `visibility`: the unit in which commits conflict. A *run* is `(segment, first_seq,
last_seq)`, neighbouring messages of one segment, both ends included. What is *recorded* about a message is a `Record`
of `rules.state`: receipt, count, deadlines, deleted or not, moved or not. A row of `visibility` is a run, or a *set*
(some of a run's messages), and the record that these messages share. A message that no row is about was never received.
No row says "in flight" or "visible": a message's state follows from its record, when it was sent, and the time.

A lane's *head row* (its segment is '') has no messages. It counts the lane's commits (`revision`) and holds the time of
the last one. In memory a record is a *code*, a small number that equal records share. All segments of the lanes lie one
behind the other on one line of numbers, the *axis*, where every message has a place of its own. So a decision is
arithmetic on three arrays, the `first`, `last` and `code` of `Runs`. Their length is the number of runs, never of
messages. The decision lays new runs on top of the recorded ones. The difference is the *edits*: the rows to insert,
update and delete, and the head row of each lane that they touch.

**The two laws.**

1. *Only a commit to `visibility` decides who holds a message.* `messages` is only appended to (and dropped once all of
   a segment is final). `receipts` is a copy of what commits say of themselves. An output table says whether its rows
   are in. A verb is one commit to `visibility`, or to `messages` for a send: it happened or it did not.
2. *A decision reads one snapshot, and conflicts through the head row.* It loads whole lanes as of one version. Its
   edits count up the head row of each lane that they touch, from the revision that it read. The second of two writers
   finds another revision, changes nothing, and decides again on the newer state. So of two commits to a lane one has
   seen the other. A decision that relies on a lane without changing it counts its head row up all the same (`meeting`:
   quotas, and attempts that must find each other). Anything that it reads elsewhere must never change, or must not
   matter when it changes: a sent message never changes; a queue's record is looked up again when the lanes are read.

**An example.** Segment `s1` of lane 3, ten messages, 0 to 9, sent to `work`; nothing is recorded yet. At 12:00:00 a
receive takes six of them for 30 s, under receipt A. That is one row and the lane's head row, whether it takes six
messages or six million::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 1
    work  3    s1         0    5  | A       1     12:00:30   -          -        | -

At 12:00:10 the holder deletes messages 2 and 3. The run is cut. Its row is shortened (an update, as it begins where it
began). The deleted messages and those after them are inserted as two rows::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 2
    work  3    s1         0    1  | A       1     12:00:30   -          -        | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          -        | -

At 12:00:40 another receive runs. By the queue's policy a message that was received once is a dead letter. Messages 0,
1, 4 and 5 move to the queue `dead`; 6 to 9 are granted under receipt B. No body is copied: the lanes of both queues
change in one commit. In `dead`, `s1` is in lane 1: 3, the lane that it was sent to, modulo 2, the number of lanes
there::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    dead  1    -         -1   -1  | -       -     -          -          -        | 1
    dead  1    s1         0    1  | -       1     -          -          -        | -
    dead  1    s1         4    5  | -       1     -          -          -        | -
    work  3    -         -1   -1  | -       -     -          -          -        | 3
    work  3    s1         0    1  | A       1     12:00:30   -          dead     | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          dead     | -
    work  3    s1         6    9  | B       1     12:01:10   -          -        | -

Upkeep drops messages that are deleted, moved or expired for good, first from `messages`, then here.

**Scatter.** Again ten messages, of a queue `wide`, all received at 12:00:00 under receipt A. At 12:00:10 every other
message is deleted. Now each record has more than a few runs in a block of 32,768 ordinals. They become a set: one row,
with a bit for each ordinal from its first message to its last (only here and in `model/run_sets.py`; in memory there
are runs). Every other message of a million would take two rows a block::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision bits
    wide  3    -         -1   -1  | -       -     -          -          -        | 2        -
    wide  3    s1         0    8  | A       1     12:00:30   12:00:10   -        | -        101010101
    wide  3    s1         1    9  | A       1     12:00:30   -          -        | -        101010101
"""
