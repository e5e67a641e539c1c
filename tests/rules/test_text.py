"""Text that can be stored, and objects of a JSON text that say each name once."""

import json

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules.text import NamedTwice, forbidden, names_once, storable


def test_m1_the_first_character_that_is_refused_is_named_as_the_service_does():
    assert forbidden("") is None and forbidden("two\nlines, Größe, 漢字") is None
    assert forbidden("a\x0bb\x01") == "#xB" and forbidden("\uffff") == "#xFFFF"


def test_an_object_that_has_a_name_twice_is_refused_and_the_error_says_which():
    text = '{"a": 1, "b": {"a": 2}, "c": {}}'
    assert json.loads(text, object_pairs_hook=names_once) == json.loads(text)
    with pytest.raises(NamedTwice, match="the name 'b' is in one object twice"):
        json.loads('{"a": {"c": 1, "b": 2, "b": 2}}', object_pairs_hook=names_once)


def test_what_is_stored_is_what_utf_8_can_say():
    assert storable("Tags", "é") == b"\xc3\xa9"
    with pytest.raises(InvalidParameterValue, match="half a character") as raised:
        storable("Tags", "a\ud800")
    assert (raised.value.field, raised.value.value) == ("Tags", "a\ud800")
