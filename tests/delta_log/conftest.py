"""One table of everything, through the client."""

import pytest

from tests.delta_log.tables import THINGS, opened


@pytest.fixture
def tables(tmp_path):
    return opened(tmp_path, THINGS)


@pytest.fixture
def location(tmp_path):
    return f"{tmp_path}/{THINGS.name}"
