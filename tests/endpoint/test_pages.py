"""The first steps of sqs-clients.md do what they say."""

from __future__ import annotations

import re
import shlex

from ledger.cli.app import application
from ledger.endpoint import keys
from tests.docs.pages import blocks_of
from tests.endpoint.test_command import Process

PAGE = "docs/how-to/sqs-clients.md"
SERVE, _, CLI, _ = blocks_of(PAGE, "sh")
PYTHON, _ = blocks_of(PAGE, "python")
WHERE = "http://127.0.0.1:9324"


def test_its_first_five_minutes_are_as_they_are_told(tmp_path, capsys, monkeypatch):
    from awscli.clidriver import create_clidriver

    exports = dict(re.findall(r"(LEDGER_\w+)=(\S+)", SERVE))
    assert set(exports) == {keys.ACCESS_KEY, keys.SECRET_KEY}
    words = shlex.split(SERVE.splitlines()[1], comments=True)
    assert words[0] == "ledger" and words[1] in application.commands
    served = Process("-m", "ledger.cli", words[1], str(tmp_path / words[2]), *words[3:], environment=exports)
    try:
        found = {}
        exec(PYTHON.replace(WHERE, served.url), found)
        assert found["url"] == f"{served.url}/123456789012/orders" and found["message"]["Body"] == "one"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", exports[keys.ACCESS_KEY])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", exports[keys.SECRET_KEY])
        command = shlex.split(CLI.replace(WHERE, served.url))
        capsys.readouterr()
        assert command[0] == "aws" and create_clidriver().main(command[1:]) == 0
        assert found["url"] in capsys.readouterr().out
    finally:
        assert served.end() == 0
