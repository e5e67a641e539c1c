"""SenderId of messages that are sent and received as DataFrames, and in the view."""

from ledger import Ledger


def test_a_bulk_send_stores_its_sender_beside_the_attributes_of_each_row(root, clock, spark):
    ledger = Ledger.open(root, spark, "delta-rs", clock=clock, sender_id="me")
    queue = ledger.create_queue("q", {"Lanes": 1})
    rows = "SELECT 'a' AS body, map('kind', 'express') AS message_attributes"
    queue.send(spark.sql(f"{rows} UNION ALL SELECT 'b', NULL"))
    queue.send(spark.sql("SELECT 'c' AS body"))
    Ledger.open(root, spark, "delta-rs", clock=clock).queue("q").send(spark.sql("SELECT 'd' AS body"))
    expected = {"a": ("me", ["kind"]), "b": ("me", []), "c": ("me", []), "d": (None, [])}
    claim = queue.receive(None)
    assert {m.body: (m.sender_id, list(m.message_attributes)) for m in claim} == expected
    for frame in (claim.dataframe, ledger.view("messages")):
        found = frame.select("body", "sender_id", "message_attributes").collect()
        assert {row.body: (row.sender_id, list(row.message_attributes or ())) for row in found} == expected
        assert all(row.message_attributes is None or len(row.message_attributes) for row in found)
