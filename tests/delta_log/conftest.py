"""One table of everything, through the client."""

import pytest

# Before they are imported: what they assert is told in full.
pytest.register_assert_rewrite("tests.delta_log.by_hand", "tests.delta_log.readers")

from tests.delta_log.tables import THINGS, opened  # noqa: E402


@pytest.fixture
def tables(tmp_path):
    return opened(tmp_path, THINGS)


@pytest.fixture
def location(tmp_path):
    return f"{tmp_path}/{THINGS.name}"
