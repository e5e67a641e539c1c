"""A list of entries to be sent: read one by one, sent in one commit, an outcome for each (M2)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ledger.errors import LedgerError
from ledger.results import OutcomeList, SendOutcome
from ledger.rules.message import Entry, entry_of, fails_the_batch
from ledger.store import Sent

log = logging.getLogger("ledger.send")
NOTHING_SENT = "Nothing was sent."


def of_entry(number: int) -> str:
    """What is said of the entry that a call of several is refused for."""
    return f"It is entry {number}. {NOTHING_SENT}"


class EntryList:
    """Entries, those of which that can be sent, and what becomes of each. A LedgerError among what is given is what an
    entry in its place was refused for before."""

    def __init__(
        self, given: Sequence[object], queue: Mapping[str, str], common: Mapping[str, object], *, in_batch: bool
    ) -> None:
        self._read = [_read(one, queue, common, in_batch) for one in given]
        #: What is to be sent.
        self.entries = [one for one in self._read if isinstance(one, Entry)]

    def require(self, *, every: bool) -> None:
        """Raises what the first entry that cannot be sent is refused for, or the first that fails the whole call."""
        for number, one in enumerate(self._read):
            if isinstance(one, LedgerError) and (every or fails_the_batch(one)):
                one.entry = number
                raise one if len(self._read) == 1 else one.advised(of_entry(number))

    def outcomes(self, sent: Sequence[Sent], name: str) -> list[SendOutcome]:
        """One outcome per entry, in order, from the store's answers for `entries`. Says in the log what the queue of
        this name refused."""
        answers = iter(sent)
        outcomes = [SendOutcome.of(one, None if isinstance(one, LedgerError) else next(answers)) for one in self._read]
        refused = [one for one in self._read if isinstance(one, LedgerError)]
        if refused:
            first = next(number for number, one in enumerate(self._read) if isinstance(one, LedgerError))
            # Not the error's text, which may show the body.
            error = refused[0]
            why = [getattr(error, part) for part in ("field", "bound") if hasattr(error, part)]
            said = ": ".join(why if len(why) > 1 else [error.code, *why])
            fix = getattr(error, "fix", "")
            said += f". {fix}" if fix else ""
            log.warning(
                "%d of %d entries for %s were refused and not sent, the first is entry %d: %s",
                *(len(refused), len(outcomes), name, first, said),
            )
        return OutcomeList(outcomes)


def _read(given: object, queue: Mapping[str, str], common: Mapping[str, object], in_batch: bool) -> Entry | LedgerError:
    if isinstance(given, LedgerError):
        return given
    try:
        return entry_of(given, queue, common, in_batch=in_batch)
    except LedgerError as error:
        return error
