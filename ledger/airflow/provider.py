"""The provider's description for Airflow: the entry point `apache_airflow_provider`.

This module imports nothing of Airflow.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import Any

CONNECTION_TYPE = "ledger"
#: The connection form's standard fields.
HIDDEN_FIELDS = ["schema", "login", "password", "port"]
RELABELING = {"host": "Root"}
PLACEHOLDERS = {"host": "/data/ledger, or s3://bucket/ledger"}
#: A connection keeps these fields in its extra.
FIELDS = {
    "storage_options": {
        "label": "Storage options",
        "description": "What reaches an object store, as JSON: delta-rs's options, such as aws_region",
        "schema": {"type": ["object", "null"]},
    },
    "settings": {
        "label": "Settings file",
        "description": "The path, on the workers, of a TOML file like conf/ledger.toml",
        "schema": {"type": ["string", "null"]},
    },
}


def provider_info() -> dict[str, Any]:
    name = "Ledger"

    def modules(*of: str) -> list[dict[str, Any]]:
        return [{"integration-name": name, "python-modules": [f"ledger.airflow.{module}" for module in of]}]

    return {
        "package-name": _find_distribution(),
        "name": name,
        "description": "Amazon SQS's visibility timeout, as a batch queue on Delta Lake tables.",
        "integrations": [{"integration-name": name, "external-doc-url": "", "tags": ["software"]}],
        "operators": modules("operators", "work_operators"),
        "sensors": modules("operators"),
        "hooks": modules("hook"),
        "triggers": modules("triggers"),
        "queues": ["ledger.airflow.messaging.LedgerMessageQueueProvider"],
        "connection-types": [
            {
                "connection-type": CONNECTION_TYPE,
                "hook-class-name": "ledger.airflow.hook.LedgerHook",
                "hook-name": name,
                "conn-fields": FIELDS,
                "ui-field-behaviour": {
                    "hidden-fields": HIDDEN_FIELDS,
                    "relabeling": RELABELING,
                    "placeholders": PLACEHOLDERS,
                },
            }
        ],
    }


def _find_distribution() -> str:
    entries = entry_points(group="apache_airflow_provider")
    names = [entry.dist.name for entry in entries if entry.module == __name__ and entry.dist is not None]
    return re.sub(r"[-_.]+", "-", names[0]).lower() if names else "ledger"
