"""The README's section on the verbs, run as it stands."""

import re

from tests.sources import CHECKOUT

SECTION = re.search(r"^## The verbs.*?(?=^## )", (CHECKOUT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]


def test_the_examples_of_the_section_on_verbs_do_what_they_say(spark, tmp_path, monkeypatch):
    # Spark's own folder is another one.
    monkeypatch.chdir(tmp_path)
    assert SECTION.count("1_000_000") == 2
    known: dict = {}
    for block in re.findall(r"```python\n(.*?)```", SECTION.replace("1_000_000", "3_000"), re.DOTALL):
        exec(compile(block, "README.md", "exec"), known)
    written = spark.read.format("delta").load(str(tmp_path / "results" / "done"))
    assert written.count() == written.select("message_id").distinct().count() == 2_997
    # What was released is no longer the claim's to delete.
    queue = known["queue"].counts()
    assert (queue.visible, queue.deleted) == (3, 2_997)
    # Their delays and leases may be over on a machine that is busy.
    orders, events = known["orders"].counts(), known["events"].counts()
    assert orders.stored == 3 and events.stored + events.in_flight == 3_000
