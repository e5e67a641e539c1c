"""How many files a reader meets who follows a verb: not more than today."""

from tests.hops import traced_verbs

#: By verb: files of the package, and hops from one to another. Lower them when a change takes some away.
MOST = {"send": (40, 225), "receive": (44, 390), "extend": (35, 305), "delete": (35, 305)}


def test_no_verb_passes_more_files_than_before(tmp_path):
    passed = traced_verbs(str(tmp_path / "ledger"))
    assert {verb: len(one.files) for verb, one in passed.items() if len(one.files) > MOST[verb][0]} == {}
    assert {verb: one.hops for verb, one in passed.items() if one.hops > MOST[verb][1]} == {}
    assert "store/delta/verbs/receiving.py" in passed["receive"].files, "the calls were traced"
