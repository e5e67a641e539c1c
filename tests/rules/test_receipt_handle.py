"""Receipt handles: read back as written, and refused when forged, cut off or of another queue."""

import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InvalidParameterValue, ReceiptHandleIsInvalid
from ledger.rules import message_id as ids
from ledger.rules.message_id import SEQ_BOUND
from ledger.rules.receipt_handle import ReceiptHandle, decode, encode, is_receipt, new_receipt_id

NAMES = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=80)
HANDLES = st.builds(
    lambda name, lane, key, ordinal, seq, receipt: ReceiptHandle(
        f"{name}-0123abcd", lane, ids.segment(key, ordinal), seq, receipt
    ),
    NAMES,
    st.integers(0, 255),
    st.builds(lambda n: f"{n:018x}", st.integers(0, 2**72 - 1)),
    st.integers(0, ids.ORDINAL_BOUND - 1),
    st.integers(0, SEQ_BOUND - 1),
    st.builds(lambda n: f"{n:032x}", st.integers(0, 2**128 - 1)),
)
HANDLE = ReceiptHandle("q-0123abcd", 3, ids.segment("0" * 18, 0), 7, "ab" * 16)


@given(HANDLES)
def test_a_handle_reads_back_as_it_was_written(handle):
    assert decode(encode(handle), handle.queue) == handle


@given(HANDLES, st.data())
def test_a_handle_that_was_cut_off_is_invalid(handle, data):
    text = encode(handle)
    kept = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(ReceiptHandleIsInvalid):
        decode(text[:kept], handle.queue)


@given(HANDLES, st.data())
def test_a_handle_with_one_character_changed_is_invalid(handle, data):
    text = encode(handle)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(string.ascii_letters + string.digits).filter(lambda c: c != text[at]))
    with pytest.raises(ReceiptHandleIsInvalid):
        decode(text[:at] + other + text[at + 1 :], handle.queue)


@given(st.one_of(st.text(), st.integers(), st.none(), st.binary()))
def test_anything_else_is_no_handle(value):
    with pytest.raises(ReceiptHandleIsInvalid, match="not one that receive handed out"):
        decode(value, "q-0123abcd")


def test_the_error_shows_the_handle_that_is_none():
    with pytest.raises(ReceiptHandleIsInvalid, match=r'handle "mistyped" is not a valid receipt handle. It is not one'):
        decode("mistyped", "q-0123abcd")


@pytest.mark.parametrize("queue", ["other-0123abcd", "q-0123abce", "q", ""])
def test_a_handle_of_another_queue_is_invalid_and_says_so(queue):
    with pytest.raises(ReceiptHandleIsInvalid, match=rf"of another queue \(q-0123abcd\), not of {queue}\.$") as raised:
        decode(encode(HANDLE), queue)
    assert encode(HANDLE) in raised.value.message


def test_a_handle_with_an_ordinal_that_no_segment_has_is_invalid_even_with_a_right_checksum():
    with pytest.raises(ReceiptHandleIsInvalid):
        decode(encode(HANDLE._replace(seq=SEQ_BOUND)), HANDLE.queue)


def test_a_forged_checksum_is_invalid():
    text = encode(HANDLE)
    forged = f"{text[:-8]}{(zlib.crc32(text[:-9].encode()) ^ 1):08x}"
    with pytest.raises(ReceiptHandleIsInvalid):
        decode(forged, HANDLE.queue)


@pytest.mark.parametrize("padding", ["\n", " ", "\x00"])
def test_a_handle_with_something_behind_it_is_invalid(padding):
    with pytest.raises(ReceiptHandleIsInvalid):
        decode(encode(HANDLE) + padding, HANDLE.queue)


def test_v14_every_receive_gives_a_new_receipt():
    receipts = {new_receipt_id() for _ in range(1_000)}
    assert len(receipts) == 1_000
    assert all(decode(encode(HANDLE._replace(receipt_id=one)), HANDLE.queue).receipt_id == one for one in receipts)


def test_an_empty_claim_has_no_receipt_and_what_can_be_none_is_refused():
    assert is_receipt(new_receipt_id()) and not is_receipt(None) and not is_receipt("")
    for wrong in (7, b"ab", True, "hello", "\ud800", new_receipt_id()[1:], f"{new_receipt_id()}\n", encode(HANDLE)):
        with pytest.raises(InvalidParameterValue, match="Must be 32 hexadecimal digits") as raised:
            is_receipt(wrong)
        assert (raised.value.field, raised.value.value) == ("receipt_id", wrong)
        assert raised.value.fix == "Give a claim's receipt_id, no receipt handle."
