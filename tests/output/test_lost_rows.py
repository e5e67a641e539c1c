"""A claim whose message files are lost is never acknowledged, whatever the session's settings pass by."""

import shutil
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import LedgerDamaged, LedgerError
from ledger.store.delta.dataframes import bulk_send

IGNORED = "spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"


@pytest.fixture
def lenient(spark):
    """The session with production settings that pass by files that are gone or broken."""
    before = {name: spark.conf.get(name) for name in IGNORED}
    for name in IGNORED:
        spark.conf.set(name, "true")
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def sent(spark, tmp_path_factory):
    """A ledger whose queue `jobs` has two files of messages, to be copied: Spark takes seconds to write them."""
    root = tmp_path_factory.mktemp("sent") / "ledger"
    queue = Ledger.open(str(root), spark).create_queue("jobs")
    queue.send(spark.range(20).selectExpr("cast(id as string) body"))
    queue.send(spark.range(20, 30).selectExpr("cast(id as string) body"))
    return root


@pytest.fixture
def queue(lenient, sent, tmp_path):
    shutil.copytree(sent, tmp_path / "ledger")
    return Ledger.open(str(tmp_path / "ledger"), lenient).queue("jobs")


@pytest.fixture(params=["missing", "empty", "corrupt"])
def lose(request, tmp_path):
    """Loses the newest file of messages."""

    def one():
        file = max(Path(tmp_path, "ledger", "messages").rglob("part*.parquet"), key=lambda one: one.stat().st_mtime_ns)
        if request.param == "missing":
            file.unlink()
        else:
            whole = file.read_bytes()
            file.write_bytes(b"" if request.param == "empty" else b"?" * len(whole))
        for checksum in file.parent.glob(f".{file.name}.crc"):
            checksum.unlink()

    return one


@pytest.mark.soak_variants("empty")
def test_a_write_of_a_claim_whose_file_is_lost_acknowledges_nothing(queue, lose, tmp_path):
    claim = queue.receive(30)
    rows = claim.dataframe.select("message_id", "body")
    lose()
    with pytest.raises(LedgerError):
        claim.write(rows, str(tmp_path / "out"))
    counts = queue.counts()
    assert (counts.deleted, counts.in_flight) == (0, 30)


@pytest.mark.soak_variants("empty")
def test_a_delete_of_a_claim_whose_dataframe_lacked_a_file_s_rows_acknowledges_nothing(queue, lose):
    claim = queue.receive(30)
    lose()
    assert claim.dataframe.count() < 30
    with pytest.raises(LedgerError):
        claim.delete()
    counts = queue.counts()
    assert (counts.deleted, counts.in_flight) == (0, 30)


@pytest.mark.soak_variants("empty", "corrupt")
def test_a_worker_whose_claim_s_file_is_lost_acknowledges_nothing(queue, lose, tmp_path):
    def work(messages):
        lose()
        return messages.select("message_id", "body")

    with pytest.raises(LedgerError):
        queue.work(work, str(tmp_path / "out"))
    assert queue.counts().deleted == 0


def test_the_session_keeps_its_settings(queue, lenient, tmp_path):
    claim = queue.receive(30)
    assert claim.write(claim.dataframe.select("message_id", "body"), str(tmp_path / "out")).messages == 30
    assert [lenient.conf.get(name) for name in IGNORED] == ["true", "true"]


def test_a_claim_s_dataframe_and_a_write_of_it_name_messages_that_have_no_row_any_more(queue, lenient, tmp_path):
    claim = queue.receive(None)
    rows = claim.dataframe.select("message_id", "body")
    lenient.sql(f"DELETE FROM delta.`{tmp_path}/ledger/messages` WHERE body IN ('3', '4', '5')")
    for call in (lambda: claim.dataframe, lambda: claim.write(rows.limit(1).select("body"), str(tmp_path / "out"))):
        with pytest.raises(LedgerDamaged, match=f"claim {claim.receipt_id}, 3 have no row"):
            call()
    with pytest.raises(LedgerDamaged):
        queue.claim(claim.receipt_id).write(lenient.range(1), str(tmp_path / "out"))
    assert claim.release().messages == 30 and queue.receive(None).dataframe.count() == 27


@pytest.mark.soak_variants("empty", "missing")
def test_a_redrive_by_a_predicate_moves_nothing_where_a_file_is_passed_by(queue, lose, tmp_path):
    ledger = Ledger.open(str(tmp_path / "ledger"), queue.access.frames.session)
    policy = {"RedrivePolicy": {"deadLetterTargetArn": queue.arn, "maxReceiveCount": 1}}
    source = ledger.create_queue("source", policy)
    source.send([f"{n}" for n in range(3)])
    source.receive(None).release()
    assert source.receive(None).count == 0 and queue.counts().visible == 33
    lose()
    with pytest.raises(LedgerError):
        queue.redrive(where="receive_count >= 1")
    assert (queue.counts().visible, source.counts().visible) == (33, 0)


@pytest.mark.soak_variants("empty", "corrupt")
def test_a_large_send_deduplicates_nothing_by_a_file_that_is_passed_by(lenient, lose, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk_send, "FEW", 0)
    ledger = Ledger.open(str(tmp_path / "ledger"), lenient)
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    rows = lenient.range(5).selectExpr("CAST(id AS STRING) AS body", "'g' AS message_group_id")
    queue.send(rows)
    lose()
    with pytest.raises(LedgerError):
        queue.send(rows)
    assert queue.counts().visible == 5
