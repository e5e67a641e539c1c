"""Message attributes: what SQS takes, how large they are, and the digests that it answers, as recorded."""

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules.message_attributes import (
    Attribute,
    check_sender_id,
    md5_of_attributes,
    md5_of_body,
    parse_message_attributes,
    size_of,
)

TRACE = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"


@pytest.mark.parametrize(
    ("given", "digest"),
    [
        ({"MyAttribute": "foobar"}, "adb59cd4678ea5a855436b949cd07ab6"),
        ({"General": "Kenobi", "Hello": "There", "Help.Me": "Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        ({"attr1": TRACE}, "8cbe4db156db8a94db8b801b7addb984"),
    ],
)
def test_recorded_the_digest_of_attributes_is_the_services(given, digest):
    assert md5_of_attributes(parse_message_attributes(given)) == digest
    assert md5_of_attributes(parse_message_attributes(dict(reversed(given.items())))) == digest, "whatever the order"


@pytest.mark.parametrize(
    ("body", "digest"),
    [
        ("message-1", "3d6b824fd8c1520e9a047d21fee6fb1f"), ("foobar", "3858f62230ac3c915f300c664312c63f"),
        ("a", "0cc175b9c0f1b6a831c399e269772661"), ("Test1", "e1b849f9631ffc1829b2e31402373e3c"),
    ],
)  # fmt: skip
def test_recorded_the_digest_of_a_body_is_the_services(body, digest):
    assert md5_of_body(body) == digest


def test_bodies_are_digested_in_utf_8():
    assert md5_of_body("é") == "66ddcd97cfdeabb2f6fb8a999b4bc76f"


def test_without_attributes_there_is_no_digest():
    assert md5_of_attributes({}) is None
    assert parse_message_attributes(None) == parse_message_attributes({}) == {}


def test_the_digest_tells_names_types_and_values_apart():
    each = [
        {"a": "1"},
        {"b": "1"},
        {"a": "2"},
        {"a": 1},
        {"a": b"1"},
        {"a": {"DataType": "String.x", "StringValue": "1"}},
    ]
    assert len({md5_of_attributes(parse_message_attributes(one)) for one in each}) == len(each)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("text", Attribute("String", "text")), (7, Attribute("Number", "7")), (1.5, Attribute("Number", "1.5")),
        (-2e-7, Attribute("Number", "-2e-07")), (b"\x00", Attribute("Binary", None, b"\x00")),
        (bytearray(b"x"), Attribute("Binary", None, b"x")), (Attribute("Number", "7"), Attribute("Number", "7")),
        ({"DataType": "Number.int", "StringValue": "7"}, Attribute("Number.int", "7")),
        ({"DataType": "Binary.gif", "BinaryValue": b"x"}, Attribute("Binary.gif", None, b"x")),
        ({"DataType": "String", "StringValue": "x", "BinaryValue": b"y", "StringListValues": []},
         Attribute("String", "x")),
    ],
)  # fmt: skip
def test_an_attribute_is_a_value_or_says_its_type_as_in_sqs(given, read):
    assert parse_message_attributes({"name": given}) == {"name": read}
    assert parse_message_attributes({"name": parse_message_attributes({"name": given})["name"].as_sqs()}) == {
        "name": read
    }


@pytest.mark.parametrize(
    "more",
    [
        {"DataType": "Number", "StringListValues": ["7"]}, {"DataType": "String", "BinaryListValues": [b"y"]},
    ],
)  # fmt: skip
def test_an_attribute_with_a_value_that_would_be_lost_is_refused(more):
    given = {"StringValue": "7", **more}
    with pytest.raises(
        InvalidParameterValue, match=f"'name' must contain one value, of type '{more['DataType']}'"
    ) as raised:
        parse_message_attributes({"name": given})
    assert (raised.value.field, raised.value.value) == ("MessageAttributes.name", given)


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "0", "x" * 256, "awsome", "amazonia.x", "a.aws.b"])
def test_a_name_that_sqs_takes(name):
    assert list(parse_message_attributes({name: "x"})) == [name]


@pytest.mark.parametrize("name", ["attr.1øßä", "é", "имя", "名前", "a\u0661"])
def test_m1_a_name_may_have_letters_beyond_ascii(name):
    assert list(parse_message_attributes({name: "x"})) == [name]


@pytest.mark.parametrize("value", ["a\x00", "\x0b", "\ufffe", "\ud800"])
@pytest.mark.parametrize("kind", ["String", "String.json"])
def test_m1_a_value_has_the_characters_that_a_body_may_have(value, kind):
    with pytest.raises(InvalidParameterValue) as raised:
        parse_message_attributes({"name": {"DataType": kind, "StringValue": value}})
    assert (raised.value.field, raised.value.value) == ("MessageAttributes.name", value)
    assert "message attribute 'name' value" in raised.value.message
    assert raised.value.bound.startswith("It holds #x") and raised.value.fix == "Send it as Binary."
    assert parse_message_attributes({"name": {"DataType": "Binary", "BinaryValue": b"\x00"}})


NO_NAMES = [
    "",
    "a b",
    ".a",
    "a.",
    "a..b",
    "x" * 257,
    "aws.x",
    "AWS.x",
    "Amazon.x",
    "aMaZoN.x",
    "a\n",
    "a€",
    "a!",
    "é..é",
]


@pytest.mark.parametrize("name", [*NO_NAMES, 7, None])
def test_another_name_is_refused(name):
    with pytest.raises(InvalidParameterValue, match=r"1 to 256 letters"):
        parse_message_attributes({name: "x"})


@pytest.mark.parametrize("name", NO_NAMES)
def test_recorded_of_a_name_of_other_characters_the_service_says_which_it_may_have(name):
    with pytest.raises(InvalidParameterValue) as raised:
        parse_message_attributes({name: "x"})
    error = raised.value
    if set(" \n€!").intersection(name):
        assert error.message == (
            "Message (user) attributes name can only contain upper and lower score characters, digits, periods, "
            "hyphens and underscores. "
        )
        assert error.fix == error.bound
    else:
        assert error.message.startswith(f"Value {name} for parameter MessageAttributes is invalid. Reason: A name")
        assert error.fix == ""


@pytest.mark.parametrize(
    "kind", ["", "string", "Text", "String.", "Number x", "Strings", None, 7, "String." + "x" * 250, "Binary. x"]
)
def test_a_type_is_string_number_or_binary_with_or_without_a_label(kind):
    with pytest.raises(InvalidParameterValue, match="String, Number or Binary") as raised:
        parse_message_attributes({"name": {"DataType": kind, "StringValue": "7"}})
    assert raised.value.field == "MessageAttributes.name.DataType"
    assert raised.value.message == (
        "The type of message (user) attribute 'name' is invalid. You must use only the following supported type "
        "prefixes: Binary, Number, String."
        if kind
        else "Message (user) attribute 'name' must contain a non-empty attribute type."
    )


@pytest.mark.parametrize(
    ("value", "kind"), [("", "String"), (b"", "Binary"), (None, "String"), (True, "String"), ([1], "String")]
)
def test_recorded_an_empty_value_is_refused(value, kind):
    with pytest.raises(InvalidParameterValue) as raised:
        parse_message_attributes({"ErrorDetails": value})
    assert (
        raised.value.message
        == f"Message (user) attribute 'ErrorDetails' must contain a non-empty value of type '{kind}'."
    )


def test_a_type_with_its_label_has_up_to_256_characters():
    longest = "String." + "x" * 249
    assert parse_message_attributes({"a": {"DataType": longest, "StringValue": "7"}})["a"].data_type == longest


def test_a_value_of_the_other_kind_is_none():
    for given in (
        {"DataType": "Binary", "StringValue": "x"},
        {"DataType": "Number", "BinaryValue": b"7"},
        {"DataType": "String"},
    ):
        with pytest.raises(InvalidParameterValue, match="must contain a non-empty value"):
            parse_message_attributes({"name": given})


@pytest.mark.parametrize("value", ["0", "-1", "+1.5", ".5", "5.", "1e10", "-1.2E-7", "0" * 38])
def test_numbers(value):
    assert parse_message_attributes({"n": {"DataType": "Number", "StringValue": value}})["n"].value == value


@pytest.mark.parametrize("value", ["x", "1,5", "--1", "1e", ".", "inf", "nan", "0x1", " 1", "1\n", "\uff11"])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(
        InvalidParameterValue, match="Can't cast the value of message \\(user\\) attribute 'n' to a number"
    ):
        parse_message_attributes({"n": {"DataType": "Number", "StringValue": value}})


def test_at_most_ten_attributes():
    assert len(parse_message_attributes({f"a{n}": "x" for n in range(10)})) == 10
    with pytest.raises(InvalidParameterValue, match=r"exceeds the allowed maximum \[10\]"):
        parse_message_attributes({f"a{n}": "x" for n in range(11)})


@pytest.mark.parametrize("given", ["x", 7, ["a"], [("a", "b")]])
def test_attributes_come_by_name(given):
    with pytest.raises(InvalidParameterValue, match=r"MessageAttributes.*by name"):
        parse_message_attributes(given)


def test_names_types_and_values_count_in_bytes():
    assert size_of(parse_message_attributes({"ab": "é", "c": b"xyz"})) == len("abString") + 2 + len("cBinary") + 3
    assert size_of({}) == 0


@pytest.mark.parametrize("given", [None, "1", "AIDAEXAMPLE:role/session", "!" * 128, "~"])
def test_a_sender_is_named_by_up_to_128_letters_digits_and_punctuation_or_not_at_all(given):
    assert check_sender_id(given) == given


@pytest.mark.parametrize("given", ["", "a b", "é", "a\n", "x" * 129, 7, b"a"])
def test_another_sender_is_refused(given):
    with pytest.raises(InvalidParameterValue, match="Must be 1 to 128 letters, digits and punctuation") as raised:
        check_sender_id(given)
    assert (raised.value.field, raised.value.value) == ("SenderId", given)
    assert raised.value.fix == "Name an account or a user."
