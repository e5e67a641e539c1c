"""How far work is: a line now and then, or a bar."""

from __future__ import annotations

import importlib.util

import pytest

from ledger import InvalidParameterValue
from ledger.runtime import progress
from ledger.runtime.progress import Meter, format_line


def test_a_line_says_what_is_done_what_failed_the_rate_the_time_left_and_the_cost():
    said = format_line("messages", 1_200, 3, 50_000, 5.0, 12_345)
    assert said == "1,200 of 50,000 messages done, 3 failed, cost 12,345, 240.0 a second, 3 min 23 s left"
    assert format_line("messages", 10, 0, None, 2.0, 0) == "10 messages done, 5.0 a second"
    # More came while it ran.
    assert format_line("messages", 10, 0, 5, 2.0, 0) == "10 messages done, 5.0 a second"
    assert format_line("messages", 0, 0, 5, 0.0, 0) == "0 of 5 messages done, 0.0 a second"


def test_lines_are_said_as_often_as_is_bearable(monkeypatch):
    now, said = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Meter("messages", 100, said.append, show=False) as meter:
        for seconds in range(1, 31):
            now[0] = seconds
            meter.update(seconds)
    assert [text.partition(" of")[0] for text in said] == ["10", "20", "30"]


def test_a_bar_without_rich_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rich", None)
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    with pytest.raises(InvalidParameterValue, match=r"ledger-queue\[progress\]"):
        Meter("messages", 1, print, show=True)
    with pytest.raises(InvalidParameterValue, match="True, False or None"):
        Meter("messages", 1, print, show="yes")


@pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="needs the extra progress")
def test_a_bar_shows_what_is_done(capsys):
    with Meter("messages", 10, print, show=True) as meter:
        meter.update(4, 1, 7)
        meter.update(12)
    said = capsys.readouterr().err
    assert "12/12" in said and "messages" in said
