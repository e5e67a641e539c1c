"""What notebooks show: numbers that are the queue's, and every text escaped; pictures of what the receipts say."""

from __future__ import annotations

import json
import pickle
import re
import sys
from datetime import datetime

import pytest
from IPython.core.formatters import HTMLFormatter

from ledger import Ledger
from ledger.client.settling import apply
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.notebook.html_view import MOST_OUTCOMES, MOST_QUEUES, render_table
from ledger.notebook.timeline_plot import IN_FLIGHT, LOST
from ledger.rules.visibility import Verb
from ledger.runtime.progress import choose_report
from ledger.store.protocol import RUNS, Action, Postponed
from tests.clock import FrozenClock


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def memory(clock):
    return Ledger.in_memory(clock)


#: What Jupyter asks.
SHOWN = HTMLFormatter()


def text(html):
    """What one reads of it, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html)).strip()


def test_a_queue_shows_its_depth_its_age_and_a_bar(memory, clock):
    queue = memory.create_queue("jobs", {"VisibilityTimeout": 45})
    queue.send([str(n) for n in range(1_200)])
    clock.advance(3 * 3_600)
    queue.receive(300)
    html = SHOWN(queue)
    assert text(html) == (
        "Queue jobs visible 900 delayed 0 locked 0 in flight 300 deleted 0 oldest 3 h visibility timeout 45 s"
    )
    assert re.findall(r'title="([^"]*)"[^>]*width:(\d+)px', html) == [("900 visible", "180"), ("300 in flight", "60")]


def test_an_empty_queue_has_an_empty_bar(memory):
    html = SHOWN(memory.create_queue("jobs"))
    assert "<span" not in html and "oldest -" in text(html)


def test_a_ledger_shows_a_line_a_queue_and_not_thousands(memory):
    for number in range(MOST_QUEUES + 1):
        memory.create_queue(f"queue-{number:03}")
    html = SHOWN(memory)
    assert html.count("<tr>") == 1 + MOST_QUEUES and "and more queues" in html and "in memory" in html


def test_a_ledger_shows_a_queue_without_counts_whose_clocks_disagree(tmp_path, clock):
    for name, ahead in (("good", 0), ("wrong", 86_400)):
        clock.advance(ahead)
        queue = Ledger.open(str(tmp_path), engine="delta-rs", clock=clock).create_queue(name)
        queue.send("a")
        queue.receive()
    clock.advance(-86_400)
    shown = text(SHOWN(Ledger.open(str(tmp_path), engine="delta-rs", clock=clock)))
    assert "wrong ClocksDisagree: " in shown and " good 0 0 1 0 " in shown


def test_a_claim_shows_what_and_until_when_and_how_long_that_is(memory, clock):
    queue = memory.create_queue("jobs")
    assert text(SHOWN(queue.receive())) == "Claim of nothing queue jobs"
    queue.send(["a", "b"])
    claim = queue.receive(2, 60)
    until = f"{datetime.fromisoformat(str(claim.deadline)):%Y-%m-%d %H:%M:%S} UTC"
    assert f"messages 2 until {until} (60 s left) receipt {claim.receipt_id}" in text(SHOWN(claim))
    clock.advance(90)
    assert "(over for 30 s)" in text(SHOWN(claim))


def test_a_claim_that_is_over_shows_so_and_one_of_which_a_part_is_left_how_much(memory):
    queue = memory.create_queue("jobs")
    queue.send(["a", "b"])
    claim = queue.receive(2, 60)
    claim.settle(delete=[claim.messages()[0].receipt_handle])
    assert "messages 2 held 1 until 2" in text(SHOWN(claim))
    claim.release()
    assert "messages 2 held 0 until over: deleted, released, or lost to others receipt" in text(SHOWN(claim))


def test_outcomes_show_what_became_of_them(memory):
    queue = memory.create_queue("jobs")
    sent, refused = queue.send(["a", "<b>\x00"])
    assert text(SHOWN(sent)) == f"SendOutcome message id {sent.message_id}"
    assert "error code InvalidMessageContents" in text(SHOWN(refused))
    claim = queue.receive()
    (outcome,) = queue.delete([claim.messages()[0].receipt_handle])
    assert text(SHOWN(outcome)).endswith("outcome deleted")
    queue.send(["c"])
    assert text(SHOWN(queue.receive().release())) == "Settled messages 1 lost 0 failed 0"
    assert text(SHOWN(queue.counts())).startswith("Counts visible 1 delayed 0")


def test_a_list_of_outcomes_is_a_list_to_everyone_and_a_table_in_notebooks_failures_first(memory):
    queue = memory.create_queue("jobs")
    sent = queue.send(["a", "\x00<b>", *map(str, range(MOST_OUTCOMES))])
    assert (
        isinstance(sent, list)
        and sent == list(sent)
        and type(sent[:1]) is list
        and json.loads(json.dumps(sent)) == sent
    )
    assert pickle.loads(pickle.dumps(sent)) == sent and repr(sent) == repr(list(sent))
    html = SHOWN(sent)
    said = text(html)
    assert said.startswith("22 outcomes: 21 successful, 1 failed message id error code error message 1 InvalidMessage")
    assert "<b>" not in html.split("</b>", 1)[1] and said.endswith("and 2 more") and html.count("<tr>") == 21
    assert f"0 {sent[0]}" in said and "sequence number" not in said
    handles = [message.receipt_handle for message in queue.receive(None)]
    gone = queue.delete([*handles, "nonsense"])
    assert isinstance(gone, list) and "receipt handle outcome error code" in text(SHOWN(gone))
    assert text(SHOWN(gone)).partition("error message ")[2].startswith("21 nonsense")
    assert text(SHOWN(queue.delete([]))) == "no outcomes"


def test_every_text_is_escaped():
    html = render_table("<title>", [("<name>", "<script>alert('\"&')</script>")])
    assert "<script" not in html and "<title>" not in html and "<name>" not in html
    assert "&lt;script&gt;alert(&#x27;&quot;&amp;&#x27;)&lt;/script&gt;" in html


@pytest.fixture
def of_two(tmp_path, clock):
    return [Ledger.open(str(tmp_path / "ledger"), clock=clock, owner=f"worker-{n}") for n in (1, 2)]


#: Of the frozen clock, in seconds.
BEGINNING = FrozenClock().now / 1_000


def bars(axes):
    """Of claims: since which second, for how long, and the colour."""
    return [
        (seconds(bar.get_x()), round(bar.get_width() * 86_400, 3), bar.get_facecolor())
        for bar in axes.patches
        if bar.get_fill()
    ]


def seconds(days):
    """Of an instant as matplotlib has it: since the beginning."""
    return round(days * 86_400 - BEGINNING, 3)


def test_a_plot_has_an_area_for_each_state_and_a_bar_for_each_claim(of_two, clock):
    from matplotlib.colors import to_rgba

    one, two = (ledger.create_queue("jobs", {"VisibilityTimeout": 30, "Lanes": 1}) for ledger in of_two)
    one.send([str(n) for n in range(10)])
    clock.advance(10)
    one.receive(4)  # and is not heard of again
    clock.advance(50)
    claim = two.receive(None)
    clock.advance(5)
    claim.delete()
    two.send(["more"])
    two.receive(None, 100)
    clock.advance(5)
    upper, lower = one.plot().axes
    assert [label.get_text() for label in lower.get_yticklabels()] == ["worker-1", "worker-2"]
    assert bars(lower) == [
        (10.0, 30.0, to_rgba(LOST, 0.85)), (60.0, 5.0, to_rgba(IN_FLIGHT)), (65.0, 5.0, to_rgba(IN_FLIGHT)),
    ]  # fmt: skip
    deleted, _, stored = (area.get_paths()[0].vertices for area in upper.collections)
    assert max(deleted[:, 1]) == 10 and max(stored[:, 1]) == 11
    assert (0.0, 11.0) not in {(seconds(at), level) for at, level in stored}, (
        "what was sent later was not there from the beginning"
    )
    assert seconds(one.plot(last=20).axes[0].get_xlim()[0]) == 50.0
    # A lease that ran out, and whose messages nobody received again, is over all the same.
    clock.advance(200)
    assert bars(one.plot().axes[1])[-1] == (65.0, 100.0, to_rgba(LOST, 0.85))


def levels(axes):
    """What is in flight, acknowledged and stored at the right end of a picture."""
    heights = {}
    for area in axes.collections:
        corners = area.get_paths()[0].vertices
        right = corners[corners[:, 0] == max(corners[:, 0])][:, 1]
        heights[area.get_label()] = max(right) - min(right)
    return tuple(heights[name] for name in ("in flight", "deleted (acknowledged)", "stored"))


def settled_in_part(of_two, clock, timeout):
    """A queue of ten messages as two see it, and a claim of six, of which two were deleted ten seconds ago."""
    one, two = (ledger.create_queue("jobs", {"VisibilityTimeout": timeout, "Lanes": 1}) for ledger in of_two)
    one.send([str(n) for n in range(10)])
    claim = one.receive(6)
    handles = [message.receipt_handle for message in claim.messages()]
    clock.advance(10)
    claim.settle(delete=handles[:2])
    clock.advance(10)
    return one, two, claim


def test_a_bar_goes_on_after_a_partial_settle_until_its_lease_runs_out(of_two, clock):
    from matplotlib.colors import to_rgba

    one, two, _ = settled_in_part(of_two, clock, 40)
    upper, lower = one.plot().axes
    assert bars(lower) == [(0.0, 20.0, to_rgba(IN_FLIGHT))] and levels(upper) == (4, 2, 4)
    clock.advance(40)
    upper, lower = one.plot().axes
    assert bars(lower) == [(0.0, 40.0, to_rgba(LOST, 0.85))] and levels(upper) == (0, 2, 8)
    assert one.counts().visible == 8
    two.receive(None)
    clock.advance(5)
    upper, lower = one.plot().axes
    assert bars(lower)[0] == (0.0, 40.0, to_rgba(LOST, 0.85)) and levels(upper) == (8, 2, 0)


def test_a_bar_ends_when_the_last_of_its_messages_is_settled_by_whomever(of_two, clock):
    from matplotlib.colors import to_rgba

    one, two, claim = settled_in_part(of_two, clock, 600)
    claim.extend()
    clock.advance(10)
    two.claim(claim.receipt_id).release(reason="hung")
    clock.advance(30)
    upper, lower = one.plot().axes
    assert bars(lower) == [(0.0, 30.0, to_rgba(IN_FLIGHT))] and levels(upper) == (0, 2, 8)


def test_a_bar_ends_when_what_is_left_is_parked_and_is_in_flight_until_that_is_over(of_two, clock):
    from matplotlib.colors import to_rgba

    one, two = (ledger.create_queue("jobs", {"VisibilityTimeout": 40, "Lanes": 1}) for ledger in of_two)
    one.send([str(n) for n in range(3)])
    claim = one.receive(3)
    handles = [message.receipt_handle for message in claim.messages()]
    clock.advance(10)
    claim.settle(delete=handles[:2], extend=handles[2:], visibility_timeout=100)
    for seconds_later, in_flight, stored in ((50, 1, 0), (100, 0, 1)):
        clock.advance(seconds_later)
        upper, lower = one.plot().axes
        assert bars(lower) == [(0.0, 10.0, to_rgba(IN_FLIGHT))] and levels(upper) == (in_flight, 2, stored)
    two.receive(None)
    assert bars(one.plot().axes[1])[0] == (0.0, 10.0, to_rgba(IN_FLIGHT))


def test_what_is_given_back_for_later_has_a_dotted_bar_and_is_no_lease_that_ran_out(of_two, clock):
    from matplotlib.colors import to_rgba

    def seconds_of(bar):
        return round(bar.get_width() * 86_400)

    one = of_two[0].create_queue("jobs", {"VisibilityTimeout": 40, "Lanes": 1})
    one.send([str(n) for n in range(4)])
    claim = one.receive(None)
    clock.advance(10)
    access, actions = one.access, []
    for number, seconds, kind in ((0, 20, Postponed.RETRY), (1, 1_000, Postponed.PARKED)):
        runs = claim.grant.part(number, 1).runs.select(RUNS.names)
        actions.append(Action(Verb.CHANGE, claim.receipt_id, runs, seconds, True, reason="busy", postponed=kind))
    apply(access, access.record(), actions)
    claim.delete()
    clock.advance(30)
    upper, lower = one.plot().axes
    dotted = [bar for bar in lower.patches if not bar.get_fill()]
    assert list(map(seconds_of, dotted)) == [20, 30]
    assert bars(lower) == [(0.0, 10.0, to_rgba(IN_FLIGHT))] and levels(upper) == (1, 2, 1)
    assert one.receive(None).count == 1
    clock.advance(10)
    assert bars(one.plot().axes[1])[0] == (0.0, 10.0, to_rgba(IN_FLIGHT))


def test_a_plot_has_the_time_of_day_on_its_axis_and_says_what_its_colours_mean(of_two, clock):
    queue = of_two[0].create_queue("jobs", {"VisibilityTimeout": 30})
    queue.send("a")
    queue.receive()
    clock.advance(400)
    figure = queue.plot()
    figure.draw_without_rendering()
    upper, lower = figure.axes
    ticks = [label.get_text() for label in lower.get_xticklabels()]
    assert "22:14" in ticks, ticks
    assert lower.get_xlabel() == "time (UTC)" and "2023-Nov-14" in lower.xaxis.get_offset_text().get_text()
    said = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in (upper, lower)]
    assert said == [
        ["stored", "in flight", "deleted (acknowledged)"],
        [
            "held, until it was settled or now",
            "ran out",
            "given back, hidden until later",
            "took over what had run out",
        ],
    ]


@pytest.mark.parametrize("last", ["1h", 0, -5, float("nan"), float("inf"), True, [60]])
def test_what_a_plot_is_asked_for_is_seconds_or_it_is_refused(memory, last):
    with pytest.raises(InvalidParameterValue, match=r"last.*seconds > 0") as refused:
        memory.create_queue("jobs").plot(last=last)
    assert "3_600" in refused.value.advice


def test_a_plot_without_a_history_says_so(memory, of_two):
    with pytest.raises(LedgerError, match="is in memory and has no history"):
        memory.create_queue("jobs").plot()
    assert len(of_two[0].create_queue("nothing").plot().axes) == 2


def test_steps_are_printed_to_whoever_sits_there_and_logged_elsewhere(monkeypatch, capsys):
    logged, own = [], []
    monkeypatch.delattr(sys, "ps1", raising=False)
    choose_report(None, logged.append)("one")
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    choose_report(None, logged.append)("two")
    choose_report(own.append, logged.append)("three")
    assert (logged, own, capsys.readouterr().out) == (["one"], ["three"], "two\n")
