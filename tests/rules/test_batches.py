"""What is wrong with a batch as a whole, in the service's words (M2)."""

import pytest

from ledger.rules.outcomes import (
    BatchEntryIdsNotDistinct,
    BatchRequestTooLong,
    EmptyBatchRequest,
    InvalidBatchEntryId,
    TooManyEntriesInBatchRequest,
    require_entries,
    require_length,
)

KIND = "SendMessageBatchRequestEntry"


def entries(*ids):
    return [{"Id": one} for one in ids]


def test_a_batch_has_one_to_ten_entries_of_different_ids():
    require_entries(entries(*"0123456789"), KIND)
    require_entries(entries("a" * 80, "A-_9"), KIND)
    with pytest.raises(EmptyBatchRequest, match=f"at least one {KIND} in the request"):
        require_entries([], KIND)
    with pytest.raises(TooManyEntriesInBatchRequest, match=r"are 10\. You have sent 11\."):
        require_entries(entries(*map(str, range(11))), KIND)
    with pytest.raises(BatchEntryIdsNotDistinct, match=r"Id b repeated\."):
        require_entries(entries("a", "b", "b", "a"), KIND)


@pytest.mark.parametrize("wrong", ["", "a b", "a:b", "é", "a" * 81, "a\n"])
def test_an_id_has_letters_digits_hyphens_and_underscores(wrong):
    with pytest.raises(InvalidBatchEntryId, match="at most 80 letters long"):
        require_entries(entries("fine", wrong), KIND)


def test_all_of_a_batch_has_at_most_a_mebibyte_with_names_types_and_values_of_attributes():
    rest = {"MessageBody": "b", "MessageAttributes": {"ab": {"DataType": "Binary", "BinaryValue": b"xyz"}}}
    counted = 1 + 2 + 6 + 3
    require_length([{"MessageBody": "é" * ((1_048_576 - counted) // 2)}, rest])
    with pytest.raises(BatchRequestTooLong, match=r"than 1048576 bytes\. You have sent 1048578 bytes\."):
        require_length([{"MessageBody": "é" * ((1_048_576 - counted) // 2 + 1)}, rest])


def test_what_has_no_length_counts_nothing_in_a_batch_and_is_refused_entry_by_entry():
    whole = {"MessageBody": "b" * 1_048_576}
    odd = {"MessageBody": 7, "MessageAttributes": {"": {"StringValue": 7, "BinaryValue": None}}}
    require_length([whole, odd, {"MessageBody": None}, {}, {"MessageAttributes": {"": 7}}, {"MessageAttributes": 7}])
