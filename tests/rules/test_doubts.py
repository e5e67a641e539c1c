"""What is in doubt keeps its receipt, whatever the rules do: by it, its owner can always end the doubt."""

import inspect

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.rules import output_doubts, redrive, visibility
from ledger.rules.output_doubts import Part
from ledger.rules.visibility import UNTOUCHED, Record, Status, is_in_doubt, status

SECOND = 1_000
RECEIPTS = ("r1", "r2", "r3")


def on_a_free_message(rule):
    """As stores do: they ask the table about a doubt before they receive or move a message."""
    return lambda record, receipt, now: (
        rule(record, receipt, now) if status(record, 0, now) is Status.VISIBLE and not is_in_doubt(record) else None
    )


def changing(timeout, **how):
    return lambda record, receipt, now: visibility.change(record, receipt, timeout, now, ceiling=None, **how)[1]


def begin(record, receipt, now):
    held = output_doubts.classify_part(record, receipt, now, written=False) is Part.HELD
    return output_doubts.begin(record, "out", f"{receipt}@t") if held else None


#: By the rule's name: the record after it; None where it does not apply.
RULES = {
    "receive": on_a_free_message(lambda record, receipt, now: visibility.receive(record, receipt, receipt, 30, now)),
    "change": changing(30),
    "change late": changing(30, receipts=visibility.Receipts.LATE),
    "change through a replaced receipt": changing(30, receipts=visibility.Receipts.RECORDED),
    "change to 0": changing(0, receipts=visibility.Receipts.LATE),
    "reject": lambda record, receipt, now: visibility.reject(record, receipt, now, 0),
    "delete": lambda record, receipt, now: visibility.delete(record, receipt, now)[1],
    "lock": lambda record, receipt, now: visibility.lock(record, 30, now),
    "restart": lambda record, receipt, now: (
        visibility.restart(record, 30, now) if visibility.is_same_attempt(record, receipt, now) else None
    ),
    "purge": lambda record, receipt, now: visibility.purge(record, now),
    "restore": visibility.restore,
    "begin": begin,
    "finish": lambda record, receipt, now: output_doubts.finish(record, f"{receipt}@t", now),
    "undo": lambda record, receipt, now: output_doubts.undo(record, f"{receipt}@t"),
    "decide_doubt": lambda record, receipt, now: (
        output_doubts.decide_doubt(record, written=receipt == "r1", now=now) if is_in_doubt(record) else None
    ),
    "mark_moved": on_a_free_message(lambda record, receipt, now: redrive.mark_moved(record, "dead-0")),
    "make_dead_letter": on_a_free_message(
        lambda record, receipt, now: redrive.make_dead_letter(record, "q-0", now, fifo=False)
    ),
    "make_redriven": on_a_free_message(lambda record, receipt, now: redrive.make_redriven(now, "q-0")),
}
steps = st.lists(st.tuples(st.sampled_from(sorted(RULES)), st.sampled_from(RECEIPTS), st.integers(0, 40)), max_size=12)


def test_every_rule_that_records_something_is_among_these():
    known = {name.partition(" ")[0] for name in RULES}
    for module in (visibility, output_doubts, redrive):
        for name, rule in inspect.getmembers(module, inspect.isfunction):
            records = "Record" in str(inspect.signature(rule).return_annotation)
            # Where tests/mutation judges the rules, a rule's mutants are its neighbours.
            own = rule.__module__ == module.__name__ and "__mutmut_" not in name
            assert not records or not own or name in known, f"{module.__name__}.{name}"


@given(steps)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_what_is_in_doubt_has_its_receipt_which_restores_it(taken):
    record, now = UNTOUCHED, SECOND
    for name, receipt, wait in [("receive", "r1", 0), ("begin", "r1", 0), *taken]:
        now += wait * SECOND
        after = RULES[name](record, receipt, now)
        record = record if after is None else after
        assert isinstance(record, Record)
        if is_in_doubt(record):
            assert record.receipt_id is not None, (name, record)
            free = max(now, record.visible_at)
            assert output_doubts.must_fence(record, record.receipt_id, free)
            back = visibility.restore(record, record.receipt_id, free)
            assert not is_in_doubt(back) and status(back, 0, free) is Status.VISIBLE
