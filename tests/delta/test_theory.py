"""The rows that the theory of operation draws are those that the store writes."""

import re

import ledger.store.delta
from ledger.rules.attempts import Attempt, hash_content
from ledger.rules.message import Entry
from ledger.store.delta.model.tables import Where

DRAWINGS = [
    [line.replace("|", " ").split() for line in drawing.splitlines()[1:]]
    for drawing in re.findall(r"(?:^    \S.*\n)+", ledger.store.delta.__doc__, re.MULTILINE)
]
NOON = 1_700_049_600_000
LANE = 3


def bits_of(row):
    """A bit for each ordinal from the first message to the last, as it is drawn."""
    if row["bits"] is None:
        return "-"
    words = [word % 2**64 for word in row["bits"]]
    first, last = row["first_seq"], row["last_seq"]
    return "".join(str(words[seq // 64 - first // 64] >> seq % 64 & 1) for seq in range(first, last + 1))


def rows_of(ledger, receipts, *, drawn_with_bits=False):
    """The rows of `visibility`, as they are drawn."""
    names = {queue.id: queue.name for queue in ledger.list_queues()}
    rows = ledger.store.engine.load("visibility", Where()).rows.sort_by(
        [("queue", "ascending"), ("first_seq", "ascending")]
    )
    return [
        [
            names[row["queue"]],
            str(row["lane"]),
            "s1" if row["segment"] else "-",
            str(row["first_seq"]),
            str(row["last_seq"]),
            receipts.get(row["receipt_id"], "-"),
            str(row["receive_count"] or "-"),
            *(f"{row[name]:%H:%M:%S}" if row[name] else "-" for name in ("visible_at", "deleted_at")),
            names.get(row["moved_to"], "-"),
            str(row["revision"] or "-"),
            *([bits_of(row)] if drawn_with_bits else []),
        ]
        for row in rows.to_pylist()
    ]


def attempt_of_lane(queue, bodies, lane, lanes):
    """An attempt id under which these bodies are sent to this lane, which follows from the id."""
    content = hash_content(queue.id, [Entry(body) for body in bodies])
    attempts = (Attempt(str(number), queue.id, content) for number in range(1_000))
    return next(one.attempt_id for one in attempts if int(one.key[:8], 16) % lanes == lane)


def test_the_example_of_the_theory_is_what_happens(open_ledger, clock):
    clock.now = NOON
    ledger = open_ledger()
    ledger.create_queue("dead", {"Lanes": 2})
    policy = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}
    queue = ledger.create_queue("work", {"Lanes": 4, "VisibilityTimeout": 30, "RedrivePolicy": policy})
    bodies = [str(number) for number in range(10)]
    queue.send(bodies, attempt_id=attempt_of_lane(queue, bodies, LANE, 4))
    first = queue.receive(6)
    receipts = {first.receipt_id: "A"}
    drawn = iter(DRAWINGS[:-1])
    assert rows_of(ledger, receipts) == next(drawn)
    clock.advance(10)
    queue.delete([message.receipt_handle for message in first.messages()[2:4]])
    assert rows_of(ledger, receipts) == next(drawn)
    clock.advance(30)
    receipts[queue.receive(4).receipt_id] = "B"
    assert rows_of(ledger, receipts) == next(drawn)
    assert next(drawn, None) is None


def test_the_example_of_scatter_is_what_happens(open_ledger, clock):
    clock.now = NOON
    ledger = open_ledger()
    queue = ledger.create_queue("wide", {"Lanes": 4, "VisibilityTimeout": 30})
    bodies = [str(number) for number in range(10)]
    queue.send(bodies, attempt_id=attempt_of_lane(queue, bodies, LANE, 4))
    claim = queue.receive(10)
    clock.advance(10)
    queue.delete([message.receipt_handle for message in claim.messages()[::2]])
    assert rows_of(ledger, {claim.receipt_id: "A"}, drawn_with_bits=True) == DRAWINGS[-1]
