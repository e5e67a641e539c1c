"""The open segments of one writer: no two appends at once have the same, and what is over is forgotten."""

from ledger.store.delta.verbs.sending import FEW_OPEN, OpenSegments

OPEN, NOW = 60, 1_700_000_000_000


def test_segments_that_are_appended_to_no_more_are_let_go_of_and_the_others_go_on():
    segments, now = OpenSegments(OPEN), NOW
    for n in range(10 * FEW_OPEN):
        segments.give_back(segments.take(f"deleted {n}", 0, now).extend_by(1), now)
        now += 1_000
        if n == 9 * FEW_OPEN:
            young = segments.take("young", 0, now).extend_by(2)
            segments.give_back(young, now)
        if n == 9 * FEW_OPEN + OPEN - 2:
            assert segments.take("young", 0, now) == young
    assert len(segments) <= 2 * FEW_OPEN


def test_a_segment_that_is_taken_is_nobody_elses_until_it_is_given_back():
    segments = OpenSegments(OPEN)
    first = segments.take("q", 0, NOW)
    other = segments.take("q", 0, NOW)
    assert first.name != other.name
    segments.give_back(first.extend_by(3), NOW)
    again = segments.take("q", 0, NOW)
    assert (again.name, again.following, again.end.last) == (first.name, 3, 2)


def test_a_segment_that_is_open_no_longer_is_not_given_out_again():
    segments = OpenSegments(OPEN)
    first = segments.take("q", 0, NOW).extend_by(1)
    for later in (NOW + OPEN * 1_000, NOW - 1):
        segments.give_back(first, NOW)
        assert segments.take("q", 0, later).name != first.name
