"""Lines that a thread writes: none is torn or mixed, and nobody waits for them."""

import os
import threading

import pytest

from ledger.endpoint import line_writer
from ledger.endpoint.line_writer import LineWriter


@pytest.fixture
def lost():
    return []


def test_a_line_of_which_a_part_was_written_is_followed_by_a_whole_one(tmp_path, lost, monkeypatch):
    """As on a disk that was full for a while."""
    write, calls = os.write, []

    def written(descriptor, data):
        calls.append(data)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:10] if len(calls) == 1 else data)

    monkeypatch.setattr(line_writer.os, "write", written)
    writer = LineWriter(str(tmp_path / "log"), lost.append)
    for line in ("the first line is cut", "second", "third"):
        writer.write(line)
    writer.close()
    assert (tmp_path / "log").read_text().splitlines()[-2:] == ["second", "third"]
    assert len(lost) == 1 and "No space" in lost[0]


def test_lines_of_a_file_that_is_renamed_under_load_are_all_there(tmp_path, lost):
    writer, count = LineWriter(str(tmp_path / "log"), lost.append), 3_000
    for number in range(count):
        writer.write(f"line {number}")
        if number % 500 == 250:
            (tmp_path / "log").rename(tmp_path / f"log.{number}")
            while not (tmp_path / "log").exists():
                writer.write("again")
    writer.close()
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines() if line != "again"]
    assert sorted(lines) == sorted(f"line {number}" for number in range(count)) and lost == []


def test_a_reader_that_does_not_read_is_told_of_once(monkeypatch, lost):
    monkeypatch.setattr(line_writer, "CLOSE_SECONDS", 0.2)
    reads, writes = os.pipe()
    writer = LineWriter(writes, lost.append)
    for _ in range(line_writer.WAITING_LINES * 2):
        writer.write("x" * 100)
    assert len(lost) == 1 and "lines wait for a reader" in lost[0]
    writer.close()
    assert "the last lines were not written" in lost[-1]
    # Let the thread end.
    reader = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(reads, 65_536), b"")], daemon=True)
    reader.start()
