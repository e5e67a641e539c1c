"""Message ids: a place as a UUID, unique by construction, and read back."""

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InvalidParameterValue
from ledger.rules import message_id as ids

KEYS = st.builds(lambda n: f"{n:018x}", st.integers(0, 2**72 - 1))
ORDINALS = st.integers(0, ids.ORDINAL_BOUND - 1)
SEQS = st.integers(0, ids.SEQ_BOUND - 1)


@given(KEYS, ORDINALS, SEQS)
def test_a_message_id_reads_back_as_its_place(key, ordinal, seq):
    segment = ids.segment(key, ordinal)
    assert ids.SEGMENT.fullmatch(segment) and len(segment) == ids.SEGMENT_LENGTH
    assert ids.place(ids.message_id(segment, seq)) == (segment, seq)


@given(KEYS, ORDINALS, SEQS)
def test_a_message_id_is_a_uuid_of_version_8(key, ordinal, seq):
    text = ids.message_id(ids.segment(key, ordinal), seq)
    read = uuid.UUID(text)
    assert str(read) == text and read.version == 8 and read.variant == uuid.RFC_4122


@given(KEYS, ORDINALS, ORDINALS)
def test_the_segments_of_one_send_differ(key, one, other):
    assert (ids.segment(key, one) == ids.segment(key, other)) == (one == other)


@given(KEYS, ORDINALS, SEQS, SEQS)
def test_ids_of_one_segment_sort_as_they_were_sent(key, ordinal, one, other):
    segment = ids.segment(key, ordinal)
    assert (ids.message_id(segment, one) < ids.message_id(segment, other)) == (one < other)


def test_segments_of_different_sends_differ():
    assert len({ids.segment(ids.new_send_key(), 0) for _ in range(10_000)}) == 10_000


def test_the_same_attempt_names_the_same_segments_and_another_one_others():
    assert ids.send_key("send", "q", "a") == ids.send_key("send", "q", "a")
    assert len({ids.send_key("send", "q", "a"), ids.send_key("send", "q", "b"), ids.send_key("send", "qa", "")}) == 3
    # A retry may run another version of the ledger: it must come to the same ones.
    assert ids.send_key("send", "q", "a") == "aa7bba069c54031ce4"


def test_a_segments_name_has_70_bits_of_its_send_and_another_version_comes_to_the_same():
    key = int("0123456789abcdef01", 16)
    others = {ids.segment(f"{key ^ 1 << bit:018x}", 5) for bit in range(72)}
    assert len(others - {ids.segment(f"{key:018x}", 5)}) == 70
    assert ids.segment(f"{key:018x}", 5) == "01234567-89ab-8cdb-8c04-0005"
    assert ids.segment(f"{key:018x}", ids.ORDINAL_BOUND - 1, is_open=True) == "01234567-89ab-8cdb-9c07-ffff"


def test_a_send_key_is_18_hexadecimal_digits():
    for key in (ids.send_key("send", "q", "a"), ids.new_send_key()):
        assert re.fullmatch("[0-9a-f]{18}", key)


@given(KEYS, ORDINALS)
def test_a_segment_says_whether_it_may_still_be_appended_to(key, ordinal):
    assert ids.is_open(ids.segment(key, ordinal, is_open=True)) and not ids.is_open(ids.segment(key, ordinal))
    assert ids.segment(key, ordinal, is_open=True) != ids.segment(key, ordinal)


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        b"x",
        "",
        "nonsense",
        "00000000-0000-8000-8000-00000000000",
        "00000000-0000-8000-8000-0000000000000",
        "00000000-0000-4000-8000-000000000000",
        "00000000-0000-8000-c000-000000000000",
        "0000000G-0000-8000-8000-000000000000",
        " 0000000-0000-8000-8000-000000000000",
        "00000000-0000-8000-8000-000000000000\n",
    ],
)
def test_what_cannot_be_a_message_id_is_refused(value):
    with pytest.raises(InvalidParameterValue, match="MessageId"):
        ids.place(value)
