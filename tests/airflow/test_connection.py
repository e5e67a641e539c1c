"""The connection type: what its fields mean, what is refused, and the form that Airflow shows."""

import json

import pytest

from ledger import InvalidParameterValue, Ledger
from ledger.airflow import LedgerHook
from ledger.airflow.hook import place_of

KEY = "secret-of-nobody"


def test_a_connection_without_extras_names_a_ledger_by_its_host(queue, root):
    assert LedgerHook().get_conn().queue("flights").id == queue.id


def test_storage_options_and_a_settings_file_are_extras_and_a_form_may_leave_them_empty():
    options = {"aws_region": "eu-central-1", "aws_allow_http": True}
    for given in (options, json.dumps(options)):
        place = place_of("c", "s3://bucket/ledger", json.dumps({"storage_options": given, "settings": "a.toml"}))
        assert (place.storage_options, place.settings) == (options, "a.toml")
    empty = place_of("c", "/data", json.dumps({"storage_options": None, "settings": ""}))
    assert (empty.storage_options, empty.settings) == ({}, None)


@pytest.mark.parametrize(
    ("host", "extra", "field"),
    [
        (None, None, "host"),
        ("", "{}", "host"),
        ("/data", "{", "extra"),
        ("/data", "[1]", "extra"),
        ("/data", json.dumps({"aws_secret_access_key": KEY}), "extra.aws_secret_access_key"),
        ("/data", json.dumps({"storage_options": f"{KEY}"}), "extra.storage_options"),
        ("/data", json.dumps({"storage_options": [KEY]}), "extra.storage_options"),
        ("/data", json.dumps({"settings": 5}), "extra.settings"),
    ],
)
def test_what_a_connection_cannot_say_is_refused_by_name_and_without_a_secret(host, extra, field):
    with pytest.raises(InvalidParameterValue) as refused:
        place_of("mine", host, extra)
    assert refused.value.field == f"{field} of the connection 'mine'"
    assert KEY not in str(refused.value)


def test_settings_are_those_of_the_file(root, queue, tmp_path, monkeypatch):
    (tmp_path / "ledger.toml").write_text('[ledger]\naccount_id = "210987654321"\n')
    connection = {"conn_type": "ledger", "host": root, "extra": {"settings": f"{tmp_path}/ledger.toml"}}
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps(connection))
    assert ":210987654321:" in LedgerHook("other").get_queue("flights").arn


def test_a_process_has_the_options_in_its_environment_and_their_text_nowhere():
    place = place_of("c", "s3://b/l", json.dumps({"storage_options": {"aws_secret_access_key": KEY, "timeout": "5s"}}))
    assert place.environment() == {"AWS_SECRET_ACCESS_KEY": KEY}
    assert KEY not in repr(place)


def test_an_option_that_no_environment_variable_says_is_refused_and_not_left_out():
    place = place_of("c", "s3://b/l", json.dumps({"storage_options": {"endpoint": "http://e", "aws_region": "r"}}))
    with pytest.raises(InvalidParameterValue, match=r"endpoint.*begin with aws_.*aws_endpoint for endpoint"):
        place.environment()


def test_the_button_of_the_form_says_what_is_there_or_what_is_wrong(root):
    good, said = LedgerHook().test_connection()
    assert not good and "no ledger" in said.lower()
    Ledger.open(root).create_queue("flights")
    assert LedgerHook().test_connection() == (True, "A ledger with 1 queue")
    assert not LedgerHook("nobody_made_it").test_connection()[0]


def test_the_owner_is_who_the_records_name(root, queue):
    assert LedgerHook(owner="me").ledger.store.outputs.owner == "me"


@pytest.fixture(scope="module")
def manager():
    """What Airflow knows of the providers that are installed."""
    from airflow.providers_manager import ProvidersManager

    return ProvidersManager()


def test_airflow_finds_the_provider_with_its_connection_type_and_its_message_queue(manager):
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    hook = ProvidersManagerTaskRuntime().hooks["ledger"]
    assert (hook.hook_class_name, hook.hook_name) == ("ledger.airflow.hook.LedgerHook", "Ledger")
    assert "ledger.airflow.messaging.LedgerMessageQueueProvider" in set(manager.queue_class_names)


def test_the_form_asks_for_a_root_storage_options_and_a_settings_file(manager):
    behaviour = manager.field_behaviours["ledger"]
    assert behaviour["relabeling"] == {"host": "Root"}
    assert set(behaviour["hidden_fields"]) == {"schema", "login", "password", "port"}
    fields = {name for name in manager.connection_form_widgets if name.startswith("extra__ledger__")}
    assert fields == {"extra__ledger__storage_options", "extra__ledger__settings"}


def test_every_module_and_class_that_the_provider_names_is_there():
    from importlib import import_module

    from ledger import airflow
    from ledger.airflow.provider import provider_info

    info = provider_info()
    for kind in ("operators", "sensors", "hooks", "triggers"):
        for module in info[kind][0]["python-modules"]:
            import_module(module)
    for name in (*info["queues"], info["connection-types"][0]["hook-class-name"]):
        module, _, attribute = name.rpartition(".")
        assert getattr(import_module(module), attribute)
    assert all(getattr(airflow, name) for name in airflow.__all__)
