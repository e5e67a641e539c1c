"""HTTP statuses, and the names of errors on the wire in both protocols.

A JSON answer has the error's shape in `__type`, and the Query code in the header x-amzn-query-error, which botocore
reads. A Query answer has the code in its body.

Source: botocore's older model of SQS, for the Query protocol. For errors that the model lacks, recordings and SQS's
page "Common Errors".
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import NamedTuple

from ledger.errors import (
    ContentionOutlastedRetries,
    LedgerError,
    LedgerTooNew,
    MessageDoesNotExist,
    QueueDoesNotExist,
    SparkIsNeeded,
    StorageFailed,
)

log = logging.getLogger("ledger.endpoint")
OK, NOT_FOUND, NOT_READY = 200, 404, 503
_MODELED, _COMMON, _PREFIX = "com.amazonaws.sqs#", "com.amazon.coral.service#", "AWS.SimpleQueueService."


class WireError(NamedTuple):
    shape: str
    query_code: str
    status: int = 400
    fault: str = "Sender"
    namespace: str = _COMMON
    #: Recorded: the sentence in the Query protocol, if it differs from the sentence in JSON.
    query_message: str | None = None

    @property
    def json_type(self) -> str:
        return self.namespace + self.shape


class ErrorAnswer(NamedTuple):
    known: WireError
    message: str

    @property
    def query_message(self) -> str:
        return self.known.query_message or self.message


def _modeled(shape: str, query_code: str | None = None, status: int = 400, message: str | None = None) -> WireError:
    return WireError(shape, query_code or shape, status, namespace=_MODELED, query_message=message)


def _prefixed(shape: str, status: int = 400) -> WireError:
    return _modeled(shape, _PREFIX + shape, status)


_NO_QUEUE = _modeled(
    "QueueDoesNotExist",
    _PREFIX + "NonExistentQueue",
    message="The specified queue does not exist for this wsdl version.",
)
_UNSUPPORTED, _INTERNAL = (
    _prefixed("UnsupportedOperation"),
    WireError("InternalFailure", "InternalFailure", 500, "Receiver"),
)
_UNAVAILABLE = WireError("ServiceUnavailableException", "ServiceUnavailable", NOT_READY, "Receiver")
#: By the `code` of the errors.
ERRORS: dict[str, WireError] = {
    QueueDoesNotExist.code: _NO_QUEUE,
    "QueueAlreadyExists": _modeled("QueueNameExists", "QueueAlreadyExists"),
    "BatchEntryIdsNotDistinct": _prefixed("BatchEntryIdsNotDistinct"),
    "BatchRequestTooLong": _prefixed("BatchRequestTooLong"),
    "EmptyBatchRequest": _prefixed("EmptyBatchRequest"),
    "InvalidBatchEntryId": _prefixed("InvalidBatchEntryId"),
    "TooManyEntriesInBatchRequest": _prefixed("TooManyEntriesInBatchRequest"),
    "MessageNotInflight": _prefixed("MessageNotInflight"),
    "PurgeQueueInProgress": _prefixed("PurgeQueueInProgress", 403),
    "QueueDeletedRecently": _prefixed("QueueDeletedRecently"),
    "UnsupportedOperation": _UNSUPPORTED,
    "OverLimit": _modeled("OverLimit", status=403),
    "ResourceNotFoundException": _modeled("ResourceNotFoundException", status=404),
    # Source: the API reference of ChangeMessageVisibility, for InvalidAddress, InvalidSecurity, ReceiptHandleIsInvalid
    # and RequestThrottled.
    **{
        shape: _modeled(shape)
        for shape in (
            "InvalidAddress",
            "InvalidAttributeName",
            "InvalidAttributeValue",
            "InvalidIdFormat",
            "InvalidMessageContents",
            "InvalidSecurity",
            "ReceiptHandleIsInvalid",
            "RequestThrottled",
        )
    },
    # Never answered: a ledger has no encryption keys.
    "KmsAccessDenied": _modeled("KmsAccessDenied", "KMS.AccessDeniedException"),
    "KmsDisabled": _modeled("KmsDisabled", "KMS.DisabledException"),
    "KmsInvalidKeyUsage": _modeled("KmsInvalidKeyUsage", "KMS.InvalidKeyUsageException"),
    "KmsInvalidState": _modeled("KmsInvalidState", "KMS.InvalidStateException"),
    "KmsNotFound": _modeled("KmsNotFound", "KMS.NotFoundException"),
    "KmsOptInRequired": _modeled("KmsOptInRequired", "KMS.OptInRequired"),
    "KmsThrottled": _modeled("KmsThrottled", "KMS.ThrottlingException"),
    "InvalidParameterValue": WireError("InvalidParameterValueException", "InvalidParameterValue"),
    "MissingParameter": WireError("MissingRequiredParameterException", "MissingParameter"),
    "SerializationException": WireError("SerializationException", "MalformedInput"),
    "MalformedQueryString": WireError("MalformedQueryStringException", "MalformedQueryString"),
    "InvalidAction": WireError("UnknownOperationException", "InvalidAction"),
    "MissingAction": WireError("UnknownOperationException", "MissingAction"),
    "AccessDenied": WireError("AccessDeniedException", "AccessDenied", 403),
    "InvalidClientTokenId": WireError("UnrecognizedClientException", "InvalidClientTokenId", 403),
    "SignatureDoesNotMatch": WireError("InvalidSignatureException", "SignatureDoesNotMatch", 403),
    "IncompleteSignature": WireError("IncompleteSignatureException", "IncompleteSignature"),
    "MissingAuthenticationToken": WireError("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403),
    "RequestEntityTooLarge": WireError("RequestEntityTooLargeException", "RequestEntityTooLarge", 413),
    "RequestTimeout": WireError("RequestTimeoutException", "RequestTimeout", 408),
    "ServiceUnavailable": _UNAVAILABLE,
    "InternalFailure": _INTERNAL,
}
#: The log has the sentences of these errors, which name no key and no signature.
_SIGNATURE_CODES = (
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
)
#: The sentence in botocore's model of SQS.
THROTTLED_SENTENCE = "The request was denied due to request throttling."
INTERNAL_SENTENCE = "We encountered an internal error. Please try again."
UNAVAILABLE_SENTENCE = "The service is temporarily unavailable. Please try again."


def told(error: BaseException, action: str | None = None) -> ErrorAnswer:
    """Return the answer for an error, and log the error.

    Only the log says what an internal error is about (storage, clocks, tables, a mistake in our code).
    """
    if isinstance(error, (SparkIsNeeded, LedgerTooNew)):
        log.error("%s: %s", error.code, error)
        return ErrorAnswer(_UNSUPPORTED, "Unsupported operation.")
    if isinstance(error, ContentionOutlastedRetries):
        log.warning("%s", error)
        return ErrorAnswer(ERRORS[error.code], THROTTLED_SENTENCE)
    if isinstance(error, StorageFailed):
        log.error("%s", error)
        return ErrorAnswer(_UNAVAILABLE, UNAVAILABLE_SENTENCE)
    if isinstance(error, LedgerError) and not isinstance(error, MessageDoesNotExist):
        on_wire = ERRORS.get(error.code)
        if on_wire is not None:
            log.info("%s was refused: %s%s", action or "a request", on_wire.query_code, _describe_refusal(error))
            return ErrorAnswer(on_wire, error.message)
        log.error("%s: %s", error.code, error)
        return ErrorAnswer(_UNAVAILABLE, UNAVAILABLE_SENTENCE)
    # Do not log the error's text: it may hold a part of a request.
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    log.error("an error of ours: %s at %s", type(error).__name__, where)
    return ErrorAnswer(_INTERNAL, INTERNAL_SENTENCE)


def _describe_refusal(error: LedgerError) -> str:
    if error.code in _SIGNATURE_CODES:
        return f": {error.message}"
    # The part after the first dot may name a message's attribute.
    field = getattr(error, "field", "").partition(".")[0]
    return f": {field}" if field else ""


def query_code(code: str) -> str:
    """Return the code of a batch's failed entry, the same in both protocols."""
    on_wire = ERRORS.get(code)
    return _INTERNAL.query_code if on_wire is None else on_wire.query_code
