"""For the folder of DAGs: one DAG sends, the other one works in a task for each claim."""

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import DAG, Asset, AssetWatcher

from ledger.airflow import LedgerCreateQueueOperator, LedgerReceiveOperator, LedgerSendOperator, LedgerWorkOperator


def lengths(messages):
    """Return the rows of a claim: the operator writes them and acknowledges, effectively once."""
    return [{"message_id": message.message_id, "length": len(message.body)} for message in messages]


with DAG("send_flights") as send_flights:
    make = LedgerCreateQueueOperator(task_id="make", ledger_queue="flights", attributes={"VisibilityTimeout": 600})
    send = LedgerSendOperator(task_id="send", ledger_queue="flights", messages=["LHR JFK", "SFO NRT", "CDG GRU"])
    make >> send

trigger = MessageQueueTrigger(scheme="ledger", ledger_queue="flights")
flights = Asset("flights", watchers=[AssetWatcher(name="flights", trigger=trigger)])

with DAG("work_flights", schedule=[flights], default_args={"retries": 2}) as work_flights:
    receive = LedgerReceiveOperator(task_id="receive", ledger_queue="flights", max_messages=2, claims=8)
    work = LedgerWorkOperator.partial(task_id="work", function=lengths, output_table="results/lengths")
    work.expand(claim=receive.output)
