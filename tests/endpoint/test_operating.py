"""What operators do with `ledger serve`: change its keys, read its access log, run it as a service or a container."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

from ledger import Ledger
from ledger.cli.serve import serve
from ledger.endpoint.command import Options
from tests.cli.running import run
from tests.endpoint.test_command import BODY, SECRET, Process, client_of
from tests.sources import CHECKOUT

OTHER_SECRET = "another secret nobody may read"
SERVE = ("-m", "ledger.cli", "serve")


def written(file, **secrets):
    """A file of keys, replaced in one step."""
    text = "".join(f'[{name}]\nsecret = "{secret}"\n' for name, secret in secrets.items())
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.rename(file)
    return str(file)


def line_with(process, text):
    while text not in process.said:
        line = process.process.stdout.readline()
        assert line, f"it ended: {process.said}"
        process.said += line


def code_of(client):
    try:
        client.list_queues()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def test_keys_are_changed_while_it_serves_and_an_old_one_works_until_it_is_removed(tmp_path):
    file = tmp_path / "keys.toml"
    served = Process(*SERVE, str(tmp_path / "ledger"), "--create", "--keys", written(file, AKID=SECRET))
    old, new = client_of(served.url), client_of(served.url, OTHER_SECRET, "NEWER")
    try:
        assert (code_of(old), code_of(new)) == (None, "InvalidClientTokenId")
        written(file, AKID=SECRET, NEWER=OTHER_SECRET)
        served.process.send_signal(signal.SIGHUP)
        line_with(served, "the keys were read anew: there are 2")
        assert (code_of(old), code_of(new)) == (None, None)
        file.write_text("no keys")
        served.process.send_signal(signal.SIGHUP)
        line_with(served, "the keys stay as they were")
        assert (code_of(old), code_of(new)) == (None, None)
        written(file, NEWER=OTHER_SECRET)
        served.process.send_signal(signal.SIGHUP)
        line_with(served, "the keys were read anew: there are 1")
        assert (code_of(old), code_of(new)) == ("InvalidClientTokenId", None)
    finally:
        assert served.end() == 0
    assert SECRET not in served.said and OTHER_SECRET not in served.said


def test_a_long_poll_outlives_a_change_of_keys(tmp_path):
    file = tmp_path / "keys.toml"
    served = Process(*SERVE, str(tmp_path / "ledger"), "--create", "--keys", written(file, AKID=SECRET))
    client = client_of(served.url)
    url = client.create_queue(QueueName="q")["QueueUrl"]
    poll = subprocess.Popen(
        [sys.executable, "-c", POLL, served.url, url], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    )
    try:
        while "ledger_long_polls 1" not in urllib.request.urlopen(f"{served.url}/metrics").read().decode():
            time.sleep(0.02)
        written(file, NEWER=OTHER_SECRET)
        served.process.send_signal(signal.SIGHUP)
        line_with(served, "the keys were read anew")
        new = client_of(served.url, OTHER_SECRET, "NEWER")
        new.send_message(QueueUrl=url, MessageBody="for the poll")
        assert poll.communicate(timeout=60)[0].strip() == "for the poll"
    finally:
        poll.kill()
        assert served.end() == 0


POLL = """
import sys
from tests.endpoint.test_command import client_of
found = client_of(sys.argv[1]).receive_message(QueueUrl=sys.argv[2], WaitTimeSeconds=20)
print(found["Messages"][0]["Body"])
"""


def test_the_access_log_says_who_did_what_and_nothing_of_a_message(tmp_path):
    log = tmp_path / "access.log"
    keys = written(tmp_path / "keys.toml", AKID=SECRET)
    served = Process(*SERVE, str(tmp_path / "ledger"), "--create", "--keys", keys, "--access-log", str(log))
    client = client_of(served.url)
    url = client.create_queue(QueueName="q")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody=BODY)
    assert code_of(client_of(served.url, OTHER_SECRET)) == "SignatureDoesNotMatch"
    urllib.request.urlopen(f"{served.url}/health").read()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{url}?Action=SendMessage&MessageBody=a-secret-body&X-Amz-Signature=of-a-url")
    while len(log.read_text().splitlines()) < 4:
        time.sleep(0.01)
    log.rename(tmp_path / "rotated.log")
    client.get_queue_url(QueueName="q")
    arn = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    client.list_message_move_tasks(SourceArn=arn)
    assert served.end() == 0
    made, sent, refused, unsigned = map(json.loads, (tmp_path / "rotated.log").read_text().splitlines())
    after, _, by_arn = map(json.loads, log.read_text().splitlines())
    assert [one["action"] for one in (made, sent, refused, unsigned, after)] == [
        "CreateQueue", "SendMessage", None, None, "GetQueueUrl"
    ]  # fmt: skip
    assert (by_arn["action"], by_arn["queue"]) == ("ListMessageMoveTasks", "q")
    assert (sent["outcome"], sent["status"], sent["queue"], sent["client"]) == ("ok", 200, "q", "127.0.0.1")
    assert sent["caller"] == "arn:aws:iam::123456789012:root" and sent["id"] and sent["milliseconds"] >= 0
    assert sent["bytes_in"] > len(BODY) and sent["bytes_out"] > 0
    assert (refused["outcome"], refused["status"], refused["caller"]) == ("SignatureDoesNotMatch", 403, None)
    assert (unsigned["method"], unsigned["path"], unsigned["status"]) == ("GET", "/123456789012/q", 400)
    everything = (tmp_path / "rotated.log").read_text() + log.read_text()
    assert not [word for word in (BODY, SECRET, "a-secret-body", "of-a-url", "AKID") if word in everything]


def test_upkeep_runs_in_a_thread_of_the_service_unless_it_is_told_not_to(tmp_path):
    """A round is due at once: there are commits, and no round on record."""
    for every, runs in (("1s", True), ("0", False)):
        root = str(tmp_path / every)
        served = Process(*SERVE, root, "--create", "--without-signatures", "--upkeep-every", every)
        client = client_of(served.url)
        client.send_message(QueueUrl=client.create_queue(QueueName="q")["QueueUrl"], MessageBody="a")
        rounds = Ledger.open(root, create=False).rounds()
        while runs and not rounds.look().lease:
            time.sleep(0.05)
        found = urllib.request.urlopen(f"{served.url}/metrics").read().decode()
        assert "ledger_commits_without_upkeep 1" in found and "ledger_upkeep_overdue 0" in found
        assert served.end() == 0
        look = rounds.look()
        assert (look.lease > 0, look.is_held) == (runs, False)


def test_a_period_of_upkeep_that_is_none_is_refused_before_anything_is_made(tmp_path):
    ran = run("serve", str(tmp_path / "ledger"), "--create", "--without-signatures", "--upkeep-every", "5 minutes")
    assert ran.code == 2 and "--upkeep-every" in ran.err and not (tmp_path / "ledger").exists()


def test_the_access_log_may_be_the_standard_output(tmp_path):
    served = Process(*SERVE, str(tmp_path / "ledger"), "--create", "--without-signatures", "--access-log", "-")
    client_of(served.url).list_queues()
    line_with(served, '"action": "ListQueues"')
    assert served.end() == 0


def test_an_access_log_that_cannot_be_written_is_refused_before_anything_is_made(tmp_path):
    place = tmp_path / "ledger"
    ran = run("serve", str(place), "--create", "--without-signatures", "--access-log", str(tmp_path))
    assert ran.code == 2 and "access-log" in ran.err and "- for the standard output" in ran.err
    assert not place.exists()


def test_a_full_disk_behind_the_access_log_stops_no_request(tmp_path):
    served = Process(*SERVE, str(tmp_path / "ledger"), "--create", "--without-signatures", "--access-log", "/dev/full")
    client = client_of(served.url)
    assert client.create_queue(QueueName="q")["QueueUrl"] and code_of(client) is None
    assert served.end() == 0
    assert served.said.count("The access log cannot be written") == 1


def options_of(words):
    """What `ledger serve` reads from words of a command line."""
    context = serve.make_context("ledger serve", list(words))
    return {name: value for name, value in context.params.items() if name in Options.__dataclass_fields__}


def test_the_example_of_a_service_is_a_command_line_that_serves_and_reloads():
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(CHECKOUT / "conf" / "ledger.service")
    command = shlex.split(unit["Service"]["ExecStart"])
    assert command[0].endswith("/ledger") and command[1] == "serve"
    options = options_of(command[2:])
    assert options["keys"] and options["access_log"].startswith("/var/log/ledger/")
    assert unit["Service"]["ExecReload"].split()[1] == "-HUP", "which the server reads its keys anew by"
    from ledger.endpoint.command import UPKEEP_GRACE_SECONDS
    from ledger.endpoint.serving import GRACE

    assert int(unit["Service"]["TimeoutStopSec"]) > GRACE + UPKEEP_GRACE_SECONDS


def test_the_example_of_a_container_installs_this_package_and_serves(tmp_path):
    lines = (CHECKOUT / "conf" / "Containerfile").read_text().splitlines()
    steps = [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]
    # What it copies is all that a wheel of the package is made of.
    for step, rest in steps:
        if step == "COPY":
            *sources, target = rest.split()
            for source in sources:
                place = CHECKOUT / source
                to = tmp_path / target.strip("/").removeprefix("src").strip("/")
                shutil.copytree(place, to, dirs_exist_ok=True) if place.is_dir() else shutil.copy(place, to)
    needed = re.findall(r'^"(\w+)" = "share/', (tmp_path / "pyproject.toml").read_text(), re.MULTILINE)
    for name in ("ledger", "README.md", "LICENSE", *needed):
        assert (tmp_path / name).exists(), name
    given = dict(steps)
    entry, command = json.loads(given["ENTRYPOINT"]), json.loads(given["CMD"])
    options = options_of([*entry[2:], *command])
    assert entry[:2] == ["ledger", "serve"] and options["host"] == "0.0.0.0" and options["keys"]
    (volume,) = re.findall(r"^VOLUME (\S+)$", "\n".join(lines), re.MULTILINE)
    assert command[0].startswith(f"{volume}/")


def test_a_place_of_the_access_log_that_is_gone_stops_no_request(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    served = Process(
        *SERVE, str(tmp_path / "ledger"), "--create", "--without-signatures", "--access-log", str(folder / "access.log")
    )
    client = client_of(served.url)
    assert code_of(client) is None
    folder.rename(tmp_path / "away")
    assert code_of(client) is None
    folder.mkdir()
    client.create_queue(QueueName="q")
    assert served.end() == 0
    (line,) = map(json.loads, (folder / "access.log").read_text().splitlines())
    assert line["action"] == "CreateQueue"


def test_a_reader_of_the_access_log_that_does_not_read_stops_no_request_and_no_stop(tmp_path):
    """A pipe takes 64 KiB, and each line has more than 400 bytes."""
    arguments = (*SERVE, str(tmp_path / "ledger"), "--create", "--without-signatures", "--access-log", "-", "--json")
    with (tmp_path / "err").open("w+") as err:
        command = [sys.executable, *arguments, "--port", "0"]
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=err, text=True) as process:
            try:
                url = json.loads(process.stdout.readline())["url"]
                for _ in range(200):
                    with pytest.raises(urllib.error.HTTPError):
                        urllib.request.urlopen(f"{url}/{'a' * 290}", timeout=30)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
            finally:
                process.kill()
        err.seek(0)
        assert "The access log cannot be written (the last lines were not written in 5.0 seconds)" in err.read()


def test_a_reader_of_all_output_that_does_not_read_stops_no_request_and_no_stop(tmp_path):
    """Containers have one pipe for both outputs. Strangers cause lines of the log, too."""
    arguments = (*SERVE, str(tmp_path / "ledger"), "--create", "--access-log", "-", "--json", "--port", "0")
    keys = {"LEDGER_ACCESS_KEY_ID": "AKID", "LEDGER_SECRET_ACCESS_KEY": SECRET}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ, **keys, "LEDGER_LOG": "info"}, **pipes) as process:
        try:
            while not (line := process.stdout.readline()).startswith("{"):
                assert line
            url = json.loads(line)["url"]
            for _ in range(200):
                with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as raw:
                    raw.sendall(b"garbage\r\n\r\n")
                with pytest.raises(urllib.error.HTTPError):
                    urllib.request.urlopen(f"{url}/{'a' * 290}", timeout=30)
            assert code_of(client_of(url)) is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_pipe_that_nobody_reads_is_no_access_log(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    ran = run(
        "serve", str(tmp_path / "ledger"), "--create", "--without-signatures", "--access-log", str(tmp_path / "pipe")
    )
    assert ran.code == 2 and "access-log" in ran.err and "It cannot be written" in ran.err


def test_the_access_log_cuts_what_a_client_calls_a_queue(tmp_path):
    log = tmp_path / "access.log"
    served = Process(*SERVE, str(tmp_path / "ledger"), "--create", "--without-signatures", "--access-log", str(log))
    client = client_of(served.url)
    with pytest.raises(ClientError):
        client.create_queue(QueueName="q" * 50_000)
    with pytest.raises(ClientError):
        client.send_message(QueueUrl=f"{served.url}/123456789012/absent", MessageBody="a")
    assert served.end() == 0
    first, second = map(json.loads, log.read_text().splitlines())
    assert (len(first["queue"]), second["queue"]) == (100, "absent")


def test_a_hangup_changes_nothing_where_there_is_no_file_of_keys(tmp_path):
    """`systemctl reload` sends it, and it ends a process that does not catch it."""
    keys = {"LEDGER_ACCESS_KEY_ID": "AKID", "LEDGER_SECRET_ACCESS_KEY": SECRET}
    served = Process(*SERVE, str(tmp_path / "ledger"), "--create", environment=keys)
    try:
        served.process.send_signal(signal.SIGHUP)
        assert code_of(client_of(served.url)) is None
    finally:
        assert served.end() == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "It must be a regular file, because it is read again on SIGHUP"),
        ("a = " + "[" * 50_000, "nested too deep"),
    ],
)
def test_keys_that_cannot_be_read_are_refused_at_once(tmp_path, content, said):
    file = tmp_path / "keys"
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content)
    ran = run("serve", str(tmp_path / "ledger"), "--create", "--keys", str(file))
    assert ran.code == 2 and said in ran.err and str(file) in ran.err and "Traceback" not in ran.err


def test_a_path_of_keys_that_cannot_be_looked_at_is_refused(tmp_path):
    ran = run("serve", str(tmp_path / "ledger"), "--create", "--keys", "k" * 5_000)
    assert ran.code == 2 and "It cannot be read (File name too long)" in ran.err and "Traceback" not in ran.err
