"""Errors of a user's function in one line (type, message, place), and whether its rows may be the cause.

From a Python worker the driver gets a traceback as text, and from the JVM a class and a message.
"""

from __future__ import annotations

import errno
import os
import re
import sysconfig
from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

from ledger.delta_log.protocol import Conflict
from ledger.errors import LedgerError, OutputNotWritten
from ledger.rules.output_columns import REFUSED, split_refusal
from ledger.rules.text import escape_surrogates
from ledger.runtime.termination import has_jvm_ended, is_termination

LONGEST = 300
TRACEBACK = "Traceback (most recent call last):"
_CAUSED_BY = "Caused by: "
_WORKER_ENDED = "Python worker exited unexpectedly (crashed)"
_FRAME = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+), in .+')
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?")
_CONDITION = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\]")
#: Types of errors, in Python and Java, that no row causes: missing modules or columns, short memory, unreached servers.
_NOT_OF_ROWS = re.compile(
    r"ImportError|ModuleNotFoundError|AnalysisException|ParseException|MemoryError|gaierror|TimeoutError|OperationalError"
    r"|UnknownHostException|SocketTimeoutException|\w*Connect(ion)?\w*(Error|Exception|Timeout|Refused)"
)
_REASON = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*?))?(?: \((?P<place>[^()]+:\d+)\))?", re.DOTALL)
_DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO))
_DISK_SENTENCES = "No space left on device|Disk quota exceeded|Read-only file system|File too large|Input/output error"
#: How libraries write an error about a full or failing disk, if their exception has no `errno`.
_NUMBER = re.compile(rf"(?P<said>{_DISK_SENTENCES}) \(os error \d+\)|\[[Ee]rrno \d+\] (?P<python>{_DISK_SENTENCES})")
#: How Java writes a disk error: a class, a colon and the system's sentence. Other classes, "Caused by: ", or a text
#: that names an executor and ends with "): " may come first.
_DISK_ERROR_OF_JAVA = re.compile(
    r"^(?:: |Caused by: |[^\n]*\): )?(?:[\w.$]+: )*[\w.$]*(?:IOException|FileSystemException|FSError)"
    rf": [^\n]*?(?P<said>{_DISK_SENTENCES})",
    re.MULTILINE,
)
_QUOTES_A_VALUE = re.compile(
    r"\[(USER_RAISED_EXCEPTION|\w*INVALID\w*|CANNOT_PARSE\w*|MALFORMED\w*|\w*OUT_OF_RANGE\w*)\b"
)
#: The error of a Python worker that imports a module with `@udf("double")` at its top level, which needs a session.
_NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"
_WORKERS_IMPORT = (
    "Spark's Python workers import this module, and have no session: make its UDFs inside a function, or move them to "
    "another module"
)
_RAISED_IN_SQL = re.escape("[USER_RAISED_EXCEPTION] ")
_CANCELLED = ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "part of cancelled job group", "cancelled part of")
_LIBRARIES = tuple(f"{folder}{os.sep}" for folder in map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
_IN_LIBRARIES = re.compile(r"[/\\](site-packages|dist-packages|pyspark|lib[/\\]python3[.\d]*)[/\\]|^<frozen ")
#: Spark's code and Python's frozen modules, which are never the user's own.
_NEVER_OWN = re.compile(r"[/\\](pyspark|py4j)[/\\]|^<frozen ")
_PACKAGE_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"


class RowError(NamedTuple):
    """An exception as users see it. `place`: the innermost line of the user's code, or of a library (`file.py:7`)."""

    type: str
    message: str
    place: str | None = None

    @property
    def text(self) -> str:
        """The error in one line: the reason that is recorded for a message that failed."""
        words = f"{self.type}: {self.message}" if self.message else self.type
        return f"{words} ({self.place})" if self.place else words

    @property
    def is_of_surroundings(self) -> bool:
        """Return whether the surroundings count as the cause, not the rows."""
        if _NO_SESSION in self.message:
            return True
        return _NOT_OF_ROWS.fullmatch(self.type.rpartition(".")[2]) is not None

    def is_like(self, other: RowError) -> bool:
        if self.is_of_surroundings and other.is_of_surroundings:
            return True
        return (self._kind, self.place) == (other._kind, other.place)

    @property
    def _kind(self) -> str:
        condition = _CONDITION.match(self.message)
        return condition[1] if condition else self.type.rpartition(".")[2].removeprefix("Spark")


def parse_row_error(text: str) -> RowError:
    """Return the error from which a reason was made, as far as its text shows."""
    parts = _REASON.fullmatch(text)
    return RowError("", text) if parts is None else RowError(parts["type"], parts["message"] or "", parts["place"])


def is_lost_race(error: BaseException) -> bool:
    """Return whether a write lost a race with other writers of its table."""
    first = _find_first_cause(error)
    return isinstance(first, Conflict) or type(first).__module__.startswith("delta.exceptions")


def is_of_function(error: BaseException) -> bool:
    """Return whether an error may come from the function or its rows, so that other rows may succeed.

    Return False for the ledger's own errors (except OutputNotWritten), a lost race, a full or failing disk, a cancelled
    job, the end of the process or of the JVM, and an exception that is no `Exception`.
    """
    if not isinstance(error, Exception) or is_termination(error) or has_jvm_ended(error):
        return False
    if isinstance(error, LedgerError) and not isinstance(error, OutputNotWritten):
        return False
    if find_storage_failure(error) is not None or is_lost_race(error):
        return False
    return not any(part in _text_of_spark(_find_first_cause(error)) for part in _CANCELLED)


def find_storage_failure(error: BaseException) -> str | None:
    """Return the system's sentence in an error about a full or failing disk; None for other errors.

    A user's exception may quote any text. So only errors of the operating system, Spark and delta-rs count.
    """
    first = _find_first_cause(error)
    if isinstance(first, OSError) and first.errno is not None:
        return os.strerror(first.errno) if first.errno in _DISK_ERRNOS else None
    if type(first) is OSError or _is_of(first, "deltalake", "_internal"):
        match = _NUMBER.search(str(first))
        return None if match is None else match["said"] or match["python"]
    match = _DISK_ERROR_OF_JAVA.search(_text_of_spark(first))
    return None if match is None else match["said"]


def match_raised_error(error: BaseException, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Return the match of a pattern in the text of SQL's `raise_error` that ended a task.

    A user's exception that quotes this text does not match.
    """
    if not _is_of(error, "pyspark", "py4j"):
        return None
    text = str(error)
    before = text.partition(TRACEBACK)[0]
    match = re.search(_RAISED_IN_SQL + f"(?={pattern.pattern})", text, pattern.flags)
    if match is None or match.start() >= len(before):
        return None
    return pattern.match(text, match.end())


def find_refused_value(error: BaseException) -> tuple[str, str] | None:
    """Return the sentence about a value that the ledger refused in a task, and words for its row."""
    match = match_raised_error(error, REFUSED)
    return None if match is None else split_refusal(match)


def _text_of_spark(error: BaseException) -> str:
    """Return a Spark error's text, or "" if it quotes a Python exception or a value."""
    if not _is_of(error, "pyspark", "py4j"):
        return ""
    text = str(error)
    return "" if TRACEBACK in text or _QUOTES_A_VALUE.search(text) else text


def _is_of(error: BaseException, *packages: str) -> bool:
    return type(error).__module__.partition(".")[0] in packages


def make_row_error(error: BaseException) -> RowError:
    outer, error = error, _find_first_cause(error)
    try:
        text = str(error).strip()
    except Exception as unreadable:
        text = f"its text cannot be read ({type(unreadable).__name__})"
    refusal = find_refused_value(error)
    if refusal is not None:
        # Do not name the row, so that users can group messages by reason.
        sentence = outer.reason if isinstance(outer, OutputNotWritten) else refusal[0]
        return RowError(OutputNotWritten.__name__, _shorten_line(sentence))
    if _WORKER_ENDED in text:
        return RowError("SparkException", f"{_WORKER_ENDED}: it was killed, ended itself, or had no memory left")
    if TRACEBACK in text:
        return _parse_traceback(text)
    if type(error).__name__ == "Py4JJavaError" and _CAUSED_BY in text:
        return _parse_java_error(text.rpartition(_CAUSED_BY)[2])
    return RowError(type(error).__name__, _shorten_line(text), _find_own_line(error))


def _find_first_cause(error: BaseException) -> BaseException:
    if isinstance(error, OutputNotWritten) and error.__cause__ is not None:
        return _find_first_cause(error.__cause__)
    return error


def _parse_traceback(text: str) -> RowError:
    frames, raised = list[tuple[str, str]](), None
    for line in text.rpartition(TRACEBACK)[2].splitlines()[1:]:
        frame = _FRAME.fullmatch(line)
        if frame:
            frames.append((frame["file"], frame["line"]))
        elif line and not line[0].isspace():
            raised = _RAISED.fullmatch(line)
            break
    place = _choose_own_line(frames)
    if raised is None:
        return RowError("PythonException", "it has no text that could be read", place)
    message = _shorten_line(raised["message"] or "")
    if _NO_SESSION in message:
        message = f"[{_NO_SESSION}] {_WORKERS_IMPORT}"
    return RowError(raised["type"], message, place)


def _parse_java_error(text: str) -> RowError:
    name, _, message = text.split("\n\tat ")[0].partition(": ")
    return RowError(name.strip().rpartition(".")[2], _shorten_line(message.strip()))


def _find_own_line(error: BaseException) -> str | None:
    return _choose_own_line([(frame.f_code.co_filename, str(line)) for frame, line in walk_tb(error.__traceback__)])


def _choose_own_line(frames: list[tuple[str, str]]) -> str | None:
    """Return the innermost line outside all libraries, or else outside this package and Spark."""
    others = [frame for frame in frames if not frame[0].startswith(_PACKAGE_FOLDER) and not _NEVER_OWN.search(frame[0])]
    own = [frame for frame in others if not frame[0].startswith(_LIBRARIES) and not _IN_LIBRARIES.search(frame[0])]
    candidates = own or others
    return escape_surrogates(f"{Path(candidates[-1][0]).name}:{candidates[-1][1]}") if candidates else None


def _shorten_line(text: str) -> str:
    lines = text.splitlines()
    shortened = escape_surrogates(" ".join((lines[0] if lines else "").partition(" SQLSTATE: ")[0].split()))
    return shortened if len(shortened) <= LONGEST else f"{shortened[: LONGEST - 3]}..."
