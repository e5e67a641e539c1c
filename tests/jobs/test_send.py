"""What the job sends of files: what is in them, or nothing."""

import json

import pytest

from jobs import send
from ledger import Ledger
from ledger.errors import InvalidParameterValue


@pytest.fixture
def sent(tmp_path, spark):
    root = str(tmp_path / "ledger")
    queue = Ledger.open(root, engine="delta-rs").create_queue("jobs")

    def sent(name, content, *options):
        (tmp_path / name).write_text(content)
        send.main(send.parser().parse_args([root, "jobs", str(tmp_path / name), *options]))
        return queue

    return sent


def bodies(queue):
    return sorted(message.body for message in queue.receive(None))


def test_csv_is_text_throughout_as_the_command_line_reads_it(sent):
    queue = sent("in.csv", 'id,zip,note\n1,00123,\n2,1e5,"a ""b"", c"\n')
    rows = [json.loads(body) for body in bodies(queue)]
    assert rows == [{"id": "1", "zip": "00123", "note": ""}, {"id": "2", "zip": "1e5", "note": 'a "b", c'}]


def test_columns_of_csv_beside_a_body_mean_what_those_of_a_table_do(sent):
    queue = sent("in.csv", "text,delay_seconds\na,\nb,600\n", "--body", "text")
    assert (queue.counts().visible, queue.counts().delayed) == (1, 1) and bodies(queue) == ["a"]


def test_with_json_it_prints_a_document(sent, capsys):
    sent("in.csv", "body\na\nb\n", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said.pop("seconds") >= 0 and said == {"queue": "jobs", "sent": 2}


@pytest.mark.soak_variants("less.csv*")
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("more.csv", "id,total\n1,a\n2,b,c\n", "nothing was sent.*Malformed"),
        ("less.csv", "id,total\n1,a\n3\n", "nothing was sent.*Malformed"),
        ("open.csv", 'id,total\n4,"x\n5,y\n', 'A quotation does not end in its line: 4,"x'),
        ("semi.csv", "id;total\n1;2\n", "separated by ';'"),
        ("space.csv", "id, body\n1,2\n", "' body', with spaces"),
        ("delay.csv", "body,delay_seconds\na,5\nb,soon\n", "nothing was sent.*'soon'"),
        ("torn.json", '{"a": 1}\n{"a":\n', "nothing was sent.*Malformed"),
        ("none.csv", None, "cannot be read as csv"),
    ],
)
def test_of_files_with_a_line_that_cannot_be_read_nothing_is_sent(sent, tmp_path, name, content, why):
    queue = sent("ok.json", '{"a": 1}\n')
    with pytest.raises(InvalidParameterValue, match=why):
        if content is None:
            send.main(send.parser().parse_args([str(tmp_path / "ledger"), "jobs", str(tmp_path / name)]))
        sent(name, content)
    assert queue.counts().stored == 1
