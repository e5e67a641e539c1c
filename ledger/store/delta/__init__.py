"""The store on Delta Lake tables: the theory of its operation. Read this first.

**Words.** A *segment* is what one sender wrote in one go: a task of a bulk send, or what a process appends to with
its small sends. A message is its place, `(segment, seq)`; so is its id. Every segment is sent to a *lane* of its
queue, and every lane is a partition of the table `visibility`: the unit in which commits conflict. A *run* is
`(segment, first_seq, last_seq)`, neighbouring messages of one segment, both ends included. What is *recorded* about a
message is a `Record` of `rules.state`: receipt, count, deadlines, deleted or moved or not. A row of `visibility` is a
run, or a *set*, some of a run's messages, and the record that all these share; what no row is about was never
received. Nothing says "in flight" or "visible": a message's state follows from its record, when it was sent, and the
time.

A lane's *head row* (the one whose segment is '') has no messages. It counts the lane's commits (`revision`) and knows
the time of the last one. In memory a record is a *code*, a small number that equal records share. All segments of
the lanes lie one behind the other on one line of numbers, the *axis*, where every message has a place of its own. So a
decision is arithmetic on three arrays, the `first`, `last` and `code` of `Runs`, whose length is the number of runs and
never of messages. It lays new runs on top of the recorded ones; the difference between the two are the *edits*: the
rows to insert, update and delete, and the head row of each lane that they touch.

**The two laws.**

1. *Only a commit to `visibility` decides who holds a message.* `messages` is only ever appended to (and, when all of
   a segment is final, dropped), `receipts` is a copy of what commits say of themselves, and an output table says
   whether its rows are in. A verb is one commit to `visibility`, or to `messages` for a send: it happened or it did
   not.
2. *A decision reads one snapshot, and trips over the head row.* It loads whole lanes as of one version. Its edits
   count up the head row of each lane that they touch, from the revision that it read; who commits second finds
   another revision, changes nothing, and decides anew on what is there by then. So of two commits to a lane one has
   seen the other. A decision that relies on a lane which it does not change counts its head row up all the same
   (`meeting`: quotas, and attempts that must find each other). What it reads elsewhere must not matter when it
   changes, or never change: a sent message never does; a queue's record is looked up again when the lanes are read.

**An example.** Segment `s1` of lane 3, ten messages, 0 to 9, sent to `work`; nothing is recorded yet. At 12:00:00 a
receive takes six of them for 30 s, under receipt A. One row and the lane's head row, whether it takes six messages or
six million::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 1
    work  3    s1         0    5  | A       1     12:00:30   -          -        | -

At 12:00:10 its holder deletes messages 2 and 3. The run is cut: its row is shortened (an update, as it begins where
it began), what was deleted and what is left behind it are inserted::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    work  3    -         -1   -1  | -       -     -          -          -        | 2
    work  3    s1         0    1  | A       1     12:00:30   -          -        | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          -        | -

At 12:00:40 somebody receives, and by the queue's policy what was received once is a dead letter. Messages 0, 1, 4 and
5 move to the queue `dead`, 6 to 9 are granted under receipt B. No body is copied: the lanes of both queues change in
one commit. `s1` is in lane 1 of `dead`: in 3, the lane that it was sent to, modulo the number of lanes there, which
is 2::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision
    dead  1    -         -1   -1  | -       -     -          -          -        | 1
    dead  1    s1         0    1  | -       1     -          -          -        | -
    dead  1    s1         4    5  | -       1     -          -          -        | -
    work  3    -         -1   -1  | -       -     -          -          -        | 3
    work  3    s1         0    1  | A       1     12:00:30   -          dead     | -
    work  3    s1         2    3  | A       1     12:00:30   12:00:10   -        | -
    work  3    s1         4    5  | A       1     12:00:30   -          dead     | -
    work  3    s1         6    9  | B       1     12:01:10   -          -        | -

What is deleted, moved or expired for good is dropped by upkeep, first from `messages`, then here.

**Scatter.** Ten messages again, of a queue `wide`, all received at 12:00:00 under receipt A. At 12:00:10 every other
one is deleted. Of one record there are more than a few runs in a block of 32,768 ordinals now. They are a set: one
row, with a bit for each ordinal from its first message to its last (here and in `model/run_sets.py` only; in memory
there are runs). It could be every other one of a million, at two rows a block::

    queue lane segment first last | receipt count visible_at deleted_at moved_to | revision bits
    wide  3    -         -1   -1  | -       -     -          -          -        | 2        -
    wide  3    s1         0    8  | A       1     12:00:30   12:00:10   -        | -        101010101
    wide  3    s1         1    9  | A       1     12:00:30   -          -        | -        101010101
"""
