"""The search for the culprits of a claim: the claim is tried again in halves.

A culprit is a message that raises when it is tried alone. In a claim of n messages, the search tries each message at
most log2(n) times, rounded up.

If everything fails alike, no message is the cause, and EverythingFails is raised. Witnesses decide: messages that were
received for the first time. (A message that was received before may be here because it failed.) If the first message
that is tried alone raises before any part has succeeded, up to LEAST_WITNESSES + log2(n) witnesses, rounded up, are
drawn at random and tried alone. If each witness raises like that message (`RowError.is_like`), everything fails.

With fewer than LEAST_WITNESSES witnesses nothing is concluded. For an error of the surroundings (a missing module, no
connection) every message is a witness, however few there are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, log2
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledger.output_tables.row_errors import RowError, is_of_function, make_row_error
from ledger.outputs.messages import find_other_messages
from ledger.store.protocol import RUNS, Grant, count_messages

#: Two messages of a claim may both be culprits by chance.
LEAST_WITNESSES = 3


class Culprit(NamedTuple):
    """A culprit: its run (GRANTED_RUNS) of one message, and its error."""

    run: pa.Table
    error: RowError


class EverythingFails(Exception):
    """All messages that were tried raised alike, so no message is the cause."""

    def __init__(self, error: RowError) -> None:
        super().__init__(error.text)
        self.error = error


class Evidence:
    """The failures of several small claims, which together can show that everything fails."""

    def __init__(self) -> None:
        self._failed: list[RowError] = []

    def add(self, culprits: Sequence[Culprit], *, any_succeeded: bool) -> None:
        """Add the outcome of a claim. Raise EverythingFails if LEAST_WITNESSES witnesses have raised alike.

        The count begins again after a success, and after witnesses that did not all raise alike.
        """
        if any_succeeded:
            self._failed.clear()
            return
        self._failed += [one.error for one in culprits if one.run["receive_count"][0].as_py() <= 1]
        alike = self._failed[:1] and [one for one in self._failed if one.is_like(self._failed[0])]
        if len(alike) < len(self._failed):
            self._failed.clear()
        elif len(alike) >= LEAST_WITNESSES:
            raise EverythingFails(alike[-1])


class Isolation:
    """The search for the culprits of one claim. `attempt` raises for a part with a culprit."""

    def __init__(self, grant: Grant, attempt: Callable[[Grant], None]) -> None:
        self._grant, self._attempt = replace(grant, order=None), attempt
        self.culprits: list[Culprit] = []
        #: Not tried again: culprits, and a witness that succeeded.
        self._alone = grant.runs.slice(0, 0)
        self._any_succeeded = self._judged = False

    def search(self, error: BaseException) -> list[Culprit]:
        """Return the culprits of a claim that raised `error` as a whole.

        Afterwards `attempt` has succeeded for all other messages. Raises EverythingFails, and any error that is not of
        the function or its rows (see `is_of_function`).
        """
        self._search(self._grant, make_row_error(error))
        return self.culprits

    def _search(self, part: Grant, error: RowError) -> None:
        if part.count == 1:
            self._blame(part, error)
            return
        middle = ceil(part.count / 2)
        halves = part.part(0, middle), part.part(middle, part.count - middle)
        first = self._try(halves[0])
        if first is not None:
            self._search(halves[0], first)
        # After the first half has succeeded, `error` is the second half's. A single message is tried again all the
        # same.
        second = error if first is None and halves[1].count > 1 else self._try(halves[1])
        if second is not None:
            self._search(halves[1], second)

    def _try(self, part: Grant) -> RowError | None:
        """Attempt a part, without the messages of `_alone`. Return the error, if any."""
        untried = replace(part, runs=find_other_messages(part.runs, self._alone.select(RUNS.names)))
        if not untried.count:
            return None
        try:
            self._attempt(untried)
        except Exception as error:
            if not is_of_function(error):
                raise
            return make_row_error(error)
        self._any_succeeded = True
        return None

    def _blame(self, part: Grant, error: RowError) -> None:
        if count_messages(find_other_messages(part.runs, self._alone.select(RUNS.names))):
            self._alone = pa.concat_tables([self._alone, part.runs])
            self.culprits.append(Culprit(part.runs, error))
        if not self._judged and not self._any_succeeded:
            self._judged = True
            self._raise_if_all_alike(error)

    def _raise_if_all_alike(self, error: RowError) -> None:
        """Raise EverythingFails if each drawn witness raises like the first message, which raised `error`."""
        runs, count = self._grant.runs, self._grant.count
        lengths = runs["last_seq"].to_numpy() - runs["first_seq"].to_numpy() + 1
        is_new = np.repeat(runs["receive_count"].to_numpy() <= 1, lengths)
        places = np.arange(count) if error.is_of_surroundings else np.flatnonzero(is_new)
        if len(places) < LEAST_WITNESSES and not error.is_of_surroundings:
            return
        for place in _draw(places.tolist(), LEAST_WITNESSES + ceil(log2(count))):
            witness = self._grant.part(place, 1)
            if not count_messages(find_other_messages(witness.runs, self._alone.select(RUNS.names))):
                continue
            raised = self._try(witness)
            if raised is None:
                self._alone = pa.concat_tables([self._alone, witness.runs])
                return
            self._blame(witness, raised)
            if not raised.is_like(error):
                return
        raise EverythingFails(error)


def _draw(places: Sequence[int], most: int) -> list[int]:
    """Return some of the places, at random: a fixed choice might draw only culprits."""
    return random.sample(places, min(most, len(places)))
