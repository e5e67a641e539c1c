"""Text that can be stored, and objects of a JSON text that say each name once."""

import json

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules.text import NamedTwice, encode_text, find_forbidden_character, require_unique_names


def test_m1_the_first_character_that_is_refused_is_named_as_the_service_does():
    assert find_forbidden_character("") is None and find_forbidden_character("two\nlines, Größe, 漢字") is None
    assert find_forbidden_character("a\x0bb\x01") == "#xB" and find_forbidden_character("\uffff") == "#xFFFF"


def test_an_object_that_has_a_name_twice_is_refused_and_the_error_says_which():
    text = '{"a": 1, "b": {"a": 2}, "c": {}}'
    assert json.loads(text, object_pairs_hook=require_unique_names) == json.loads(text)
    with pytest.raises(NamedTwice, match="the name 'b' is in one object twice"):
        json.loads('{"a": {"c": 1, "b": 2, "b": 2}}', object_pairs_hook=require_unique_names)


def test_what_is_stored_is_what_utf_8_can_say():
    assert encode_text("Tags", "é") == b"\xc3\xa9"
    with pytest.raises(InvalidParameterValue, match="half a character") as raised:
        encode_text("Tags", "a\ud800")
    assert (raised.value.field, raised.value.value) == ("Tags", "a\ud800")
