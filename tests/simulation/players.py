"""A simulated client that knows every verb."""

from __future__ import annotations

from tests.simulation.forking import Forking
from tests.simulation.holding import Holding
from tests.simulation.jumping import Jumping
from tests.simulation.naming import Naming
from tests.simulation.replacing import Replacing
from tests.simulation.tasking import Tasking


class AnyPlayer(Forking, Holding, Jumping, Naming, Replacing, Tasking):
    """Plays the programs of all worlds."""
