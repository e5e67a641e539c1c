"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FrozenClock:
    """Answers the same instant in milliseconds until `advance`."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def passing(self) -> float:
        """The seconds that passed: of time that a test lets pass, both kinds of clock tell."""
        return self.now / 1_000

    def advance(self, seconds: float) -> None:
        """Moves on by so many seconds."""
        self.now += round(seconds * 1_000)
