"""Which transaction was committed last is told by the commits that are followed, as the engine would tell it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.delta_log.protocol import Conflict
from ledger.delta_log.replay import Last, TransactionsSeen
from tests.delta.commit.test_engines import rows

APPLICATIONS = st.sampled_from("ab")
COMMITS = st.lists(st.dictionaries(APPLICATIONS, st.integers(0, 9)), max_size=12)


def last_of(commits, version, application):
    """What is committed of an application's by a version."""
    carried = [commit[application] for commit in commits[:version] if application in commit]
    return carried[-1] if carried else None


@given(COMMITS, st.data())
def test_what_was_seen_and_told_is_what_was_committed(commits, data):
    """A listing, and commits that are followed from there, one by one; now and then it is asked, and so is the engine,
    which has reached any version since the listing."""
    listed = data.draw(st.integers(0, len(commits)))
    seen = TransactionsSeen(listed)
    for version in range(listed, len(commits) + 1):
        if version > listed:
            seen = seen.after(commits[version - 1])
        for application in data.draw(st.lists(APPLICATIONS, max_size=2)):
            reached = data.draw(st.integers(listed, len(commits)))
            last = seen.last(application, version, lambda name, at=reached: (at, last_of(commits, at, name)))
            assert last.table_version >= version
            if last.table_version == version:
                assert last.committed == last_of(commits, version, application)


def test_what_was_told_before_the_listing_is_not_believed():
    seen, answers = TransactionsSeen(7), iter([(6, None), (7, 3)])
    assert seen.last("a", 7, lambda name: next(answers)) == Last(6, None)
    assert seen.last("a", 7, lambda name: next(answers)) == Last(7, 3)


def test_the_engine_is_asked_once_for_each_application():
    seen, asked = TransactionsSeen(), []

    def ask(application):
        asked.append(application)
        return 0, None

    for version, carried in enumerate(({}, {"b": 5}, {}, {"a": 1}), 1):
        for application in ("a", "b"):
            seen.last(application, version - 1, ask)
        seen = seen.after(carried)
    assert seen.last("a", 4, ask) == Last(4, 1) and seen.last("b", 4, ask) == Last(4, 5)
    assert asked == ["a", "b"]


@pytest.fixture
def two(engine_of):
    """Two processes' engines on one ledger."""
    return engine_of("delta-rs"), engine_of("delta-rs")


def test_each_process_sees_what_the_other_has_committed(two):
    one, other = two
    for number in range(3):
        one.append("messages", rows(2 * number, ["a"]), {}, [("app", 2 * number)])
        assert other.transaction_version("messages", "app") == 2 * number
        other.append("messages", rows(2 * number + 1, ["a"]), {}, [("app", 2 * number + 1)])
        assert one.transaction_version("messages", "app") == 2 * number + 1
    with pytest.raises(Conflict):
        one.append("messages", rows(9, ["a"]), {}, [("app", 3)])
