"""The README's section on the verbs, run as it stands, by somebody with a DataFrame and a function of his own."""

import re

from pyspark.sql import functions as F

from tests.sources import CHECKOUT

SECTION = re.search(r"^## The verbs.*?(?=^## )", (CHECKOUT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]


def test_the_examples_of_the_section_on_verbs_do_what_they_say(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    some = spark.range(30)
    rows = some.select(F.concat(F.lit("flight "), "id").alias("body"), F.lit("JFK").alias("message_group_id"))

    def work(messages):
        return messages.where("body LIKE '%1%'"), messages.where("body LIKE '%2%' AND body NOT LIKE '%1%'")

    known = {"spark": spark, "df": rows, "attempt": "a task of its own", "work": work}
    for block in re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL):
        exec(compile(block, "README.md", "exec"), known)
    written = spark.read.format("delta").load(str(tmp_path / "results" / "done")).select("body").collect()
    assert sorted(row.body for row in written) == sorted(f"flight {n}" for n in range(30) if "1" in str(n))
    queue = known["queue"].counts()
    released = sum("2" in str(n) and "1" not in str(n) for n in range(30))
    assert (queue.visible, queue.deleted) == (released, 30 - released)
    # Their delays and leases may be over on a machine that is busy.
    orders, events = known["orders"].counts(), known["events"].counts()
    assert orders.stored == 1 and events.stored + events.in_flight == 30
