"""Opening a ledger on S3: who commits is decided and recorded, and what is wrong is said in seconds, with the fix."""

import time
from types import SimpleNamespace

import pytest
from deltalake import DeltaTable
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import S3Store

from ledger import Ledger
from ledger.clock import system_clock
from ledger.delta_log.object_store import OF_DELTA_RS, ObjectStore, unknown_options
from ledger.errors import ClocksDisagree, InvalidParameterValue, LedgerDoesNotExist, StorageFailed, UnsafeStorage
from ledger.settings import Settings
from ledger.store.delta.by_delta_rs import DeltaRsEngine
from ledger.store.delta.commit.clocks import make_object_probe
from ledger.store.delta.model.tables import COMMITS, FORMAT, TABLES
from tests.clock import FrozenClock
from tests.s3.server import s3_server

#: What an error may take that delta-rs alone would take 180 seconds for.
SECONDS = 15.0


@pytest.fixture
def opened(s3, place):
    """Opens the ledger at the place, with further options."""

    def open_it(root=place, *arguments, options=(), **more):
        return Ledger.open(root, *arguments, storage_options={**s3.options, **dict(options)}, **more)

    return open_it


@pytest.fixture
def files(s3, place):
    return ObjectStore(place, s3.options)


def table(s3, place, name):
    return DeltaTable(f"{place}/{name}", storage_options=s3.options)


def test_a_new_ledger_is_its_tables_and_nothing_else(opened, files, s3, place):
    opened()
    assert files.names() == sorted(TABLES), "what was written to try the storage is gone"
    assert {name: table(s3, place, name).version() for name in TABLES} == dict.fromkeys(TABLES, 0)


def test_what_is_there_is_opened_without_a_commit_under_either_name_of_s3(opened, s3, place):
    opened().create_queue("jobs").send(["a", "b"])
    before = {name: table(s3, place, name).version() for name in TABLES}
    of_hadoop = opened(place.replace("s3:", "s3a:"), create=False)
    assert [message.body for message in of_hadoop.queue("jobs").receive(2)] == ["a", "b"]
    assert opened(create=False).queue("jobs").counts().in_flight == 2, "it is one ledger"
    changed = {name for name in TABLES if table(s3, place, name).version() != before[name]}
    assert changed == {"visibility"}


def test_what_must_not_be_made_is_refused_and_nothing_is_written(opened, files):
    with pytest.raises(LedgerDoesNotExist, match="there is nothing"):
        opened(create=False)
    files.put_new("notes/mine.txt", b"mine")
    with pytest.raises(LedgerDoesNotExist, match="there are other things"):
        opened(create=False)
    assert list(files.paths()) == ["notes/mine.txt"]


def wrong_port(s3, place):
    return place, {"aws_endpoint": "http://127.0.0.1:9"}


def no_http(s3, place):
    return place, {"aws_allow_http": "false"}


def other_bucket(s3, place):
    return "s3://buckt/ledger", {}


WRONG = {
    wrong_port: "127.0.0.1:9.*aws_endpoint",
    no_http: "aws_allow_http if aws_endpoint begins with http:",
    other_bucket: "NoSuchBucket",
}


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("what", WRONG, ids=lambda what: what.__name__)
def test_a_storage_that_is_not_reached_is_named_in_seconds_with_what_to_look_at(opened, s3, place, what, create):
    root, options = what(s3, place)
    began = time.monotonic()
    with pytest.raises(StorageFailed, match=WRONG[what]) as failed:
        opened(root, options=options, create=create)
    assert time.monotonic() - began < SECONDS
    assert failed.value.place == root and "Look at the storage_options" in str(failed.value)


def test_wrong_keys_are_said_by_the_storage_and_in_plain_text(place):
    with s3_server(fault="keys are looked at") as strict:
        assert Ledger.open(place, storage_options=strict.options)
        mistyped = {**strict.options, "aws_access_key_id": "tset"}
        with pytest.raises(StorageFailed, match=r"InvalidAccessKeyId.*aws_access_key_id"):
            Ledger.open(place, storage_options=mistyped)
        with pytest.raises(StorageFailed, match="403 Forbidden") as failed:
            DeltaRsEngine({"queues": f"{place}/queues"}, mistyped).version("queues")
    assert "\x1b" not in str(failed.value), "delta-rs colours its errors"


def test_hadoops_names_of_options_are_refused_with_those_of_delta_rs(opened):
    with pytest.raises(InvalidParameterValue, match=r"fs\.s3a\.endpoint.*delta-rs's option is aws_endpoint"):
        opened(options={"fs.s3a.endpoint": "localhost:9000"})


def test_an_option_that_nobody_knows_is_named_once_by_a_warning_and_refuses_nothing(opened, caplog):
    mistyped = {"aws_alow_http": "true", "AWS_ENDPIONT": "http://127.0.0.1:9"}
    opened(options={**mistyped, "max_retries": "2", "AWS_S3_LOCKING_PROVIDER": "", "aws_bucket_name": "bucket"})
    (said,) = [record.getMessage() for record in caplog.records if record.name == "ledger.opening"]
    assert "knows the storage_options aws_alow_http, AWS_ENDPIONT (mistyped?)" in said
    caplog.clear()
    opened()
    assert not [record for record in caplog.records if record.name == "ledger.opening"]


@pytest.mark.parametrize("name", OF_DELTA_RS)
def test_what_is_called_delta_rss_own_is_nothing_that_obstore_knows(name):
    with pytest.raises(UnknownConfigurationKeyError):
        S3Store.from_url("s3://bucket", config={name: "x"})
    assert unknown_options("s3://bucket/x", {name: "x", f"AWS_{name.upper()}": "x"}) == []


def test_a_switch_may_be_given_as_true(opened):
    assert opened(options={"aws_allow_http": True}).create_queue("jobs").send("a")


def test_options_for_delta_rs_are_the_users_where_they_give_them(opened):
    assert opened().store.storage_options["retry_timeout"] == "30s"
    for name in ("retry_timeout", "RETRY_TIMEOUT", "aws_retry_timeout"):
        assert {
            value for key, value in opened(options={name: "7s"}).store.storage_options.items() if "retry" in key.lower()
        } == {"7s"}


def test_a_storage_that_writes_over_files_is_refused_and_nothing_is_made(place):
    with s3_server(fault="puts without conditions") as careless:
        for settings in (Settings(), Settings(single_driver=True)):
            with pytest.raises(UnsafeStorage, match=r"If-None-Match.*No table was made.*conditional puts"):
                Ledger.open(place, storage_options=careless.options, settings=settings)
        assert not list(ObjectStore(place, careless.options).paths())


def test_a_new_ledger_records_that_delta_rs_commits_and_keeps_out_who_would_not(opened, s3, place):
    opened().create_queue("jobs").send("a")
    queues = table(s3, place, "queues").metadata()
    assert (queues.description, queues.configuration[COMMITS], queues.configuration[FORMAT]) == (
        "ledger format 1",
        "delta-rs",
        "1",
    )
    with pytest.raises(UnsafeStorage, match="only delta-rs may commit to a ledger on S3"):
        opened(place, SimpleNamespace(version="4.2.0"), "spark")


def test_a_ledger_that_another_engine_commits_to_is_refused_with_the_fix(opened, s3, place):
    opened()
    table(s3, place, "queues").alter.set_table_properties({COMMITS: "spark"}, raise_if_not_exists=False)
    with pytest.raises(UnsafeStorage, match=r'records that spark commits.*through delta-rs.*engine="spark"'):
        opened()


def test_of_two_that_make_a_ledger_at_once_the_later_one_finds_the_others_tables(opened, s3, place, monkeypatch):
    """delta-rs looks first, and its commit of version 0 fails when another was there in between."""
    create = DeltaRsEngine.create

    def too_late(engine, table):
        create(engine, table)
        raise StorageFailed(place, "Failed to commit transaction: Protocol changed since last commit")

    def never(engine, table):
        raise StorageFailed(place, "Access denied")

    monkeypatch.setattr(DeltaRsEngine, "create", never)
    with pytest.raises(StorageFailed, match="Access denied"):
        opened()
    monkeypatch.setattr(DeltaRsEngine, "create", too_late)
    assert opened().create_queue("jobs").send("a")
    assert table(s3, place, "visibility").version() == 0


def test_this_machines_clock_is_held_against_the_storages(opened, files, monkeypatch):
    before = system_clock()
    assert before - 1_000 <= make_object_probe(files)() <= system_clock()
    assert not list(files.paths())
    opened()
    ahead = FrozenClock(system_clock() + 60_000)
    with pytest.raises(ClocksDisagree, match="the storage's clock says"):
        opened(clock=ahead, storage_clock=make_object_probe(files))
    monkeypatch.setattr("ledger.store.delta.opening.system_clock", ahead)
    with pytest.raises(ClocksDisagree, match="the storage's clock says"):
        opened(clock=ahead)


def test_a_ledger_is_destroyed_and_nothing_beside_it(opened, s3, place, files):
    opened().create_queue("jobs").send(["a", "b"])
    files.put("results/part-0.parquet", b"mine")
    seen = Ledger.destroy(place, storage_options=s3.options, dry_run=True)
    assert seen.files > 8 and seen.bytes and seen.stays == ("results",)
    assert Ledger.destroy(place, storage_options=s3.options) == seen
    assert list(files.paths()) == ["results/part-0.parquet"]
    with pytest.raises(LedgerDoesNotExist):
        Ledger.destroy(place, storage_options=s3.options)


def test_a_removal_of_a_ledger_that_is_stopped_is_carried_on(opened, s3, place, files, monkeypatch):
    opened().create_queue("jobs").send(["a", "b"])
    remove_all, left = ObjectStore.remove_all, iter([True] * 3)

    def stopping(self, paths):
        if next(left, None) is None:
            raise KeyboardInterrupt
        remove_all(self, paths)

    monkeypatch.setattr(ObjectStore, "remove_all", stopping)
    with pytest.raises(KeyboardInterrupt):
        Ledger.destroy(place, storage_options=s3.options)
    monkeypatch.undo()
    with pytest.raises(LedgerDoesNotExist):
        opened(create=False)
    assert Ledger.destroy(place, storage_options=s3.options).files and not list(files.paths())
