"""A race is run on a ledger of its own, copied from a template."""

import shutil

import pytest

from ledger import Ledger
from tests.races.racing import Race


@pytest.fixture(scope="session")
def race_template(tmp_path_factory):
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root), engine="delta-rs")
    return root


@pytest.fixture
def make_race(race_template, tmp_path):
    """Makes the race's queue with so many messages."""

    def make(messages, **more):
        folder = tmp_path / "logs"
        folder.mkdir()
        return Race(shutil.copytree(race_template, tmp_path / "ledger"), folder, messages, **more)

    return make
