"""A machine whose wall clock is set while time passes as ever."""

from tests.clock import FrozenClock

HOUR, DAY = 3_600, 86_400
#: Between two rounds of upkeep, each a process of its own.
ROUND = HOUR


class Machine:
    """Several processes' wall clock, and the time that passes; `set` is what somebody does to the clock alone."""

    def __init__(self):
        self.clock, self.passed, self.boot = FrozenClock(), 1_000.0, "boot 1"

    def __call__(self):
        return self.clock()

    def passing(self):
        return self.Passing(self)

    class Passing:
        def __init__(self, machine):
            self.machine = machine

        def __call__(self):
            return self.machine.passed

        @property
        def boot(self):
            return self.machine.boot

    def advance(self, seconds):
        """Lets time pass."""
        self.clock.advance(seconds)
        self.passed += seconds

    def set(self, seconds):
        """Sets the clock so much ahead, or back."""
        self.clock.advance(seconds)

    def restart(self, name):
        self.boot, self.passed = name, 0.0


def state(ledger):
    return [ledger.store.engine.version(table) for table in ("visibility", "messages", "queues", "tasks")]


def rounds_on_other_boots(process, machine):
    """Three rounds of upkeep, each after a restart, so that no time that passed can be compared."""
    for boot in ("boot 2", "boot 3", "boot 4"):
        machine.restart(boot)
        machine.advance(ROUND)
        process().upkeep()
