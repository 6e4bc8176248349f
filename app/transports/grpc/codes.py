"""gRPC's status codes, and which one each error has.

Source: https://grpc.io/docs/guides/status-codes/
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from google.protobuf.message import DecodeError

from app.core import errors
from app.core.errors import ServingError
from app.transports.request_id import shown

logger = logging.getLogger(__name__)


class StatusCode(IntEnum):
    """The codes that a call may end with; their numbers are those of `grpc-status`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


#: The status code of each error class; a subclass that is not listed has that of its nearest base.
#: OutOfMemory has the code that TensorFlow uses. RequestTooLarge is not RESOURCE_EXHAUSTED: a retry cannot succeed, but
#: for BodyOverMemory, which a server with more memory answers, it is, as for a message over grpc_max_message_bytes.
GRPC_CODES: Mapping[type[ServingError], StatusCode] = {
    errors.InvalidRequest: StatusCode.INVALID_ARGUMENT,
    errors.SignatureNotFound: StatusCode.FAILED_PRECONDITION,
    errors.PreconditionFailed: StatusCode.FAILED_PRECONDITION,
    errors.Unauthenticated: StatusCode.UNAUTHENTICATED,
    errors.Forbidden: StatusCode.PERMISSION_DENIED,
    errors.NotAllowed: StatusCode.PERMISSION_DENIED,
    errors.RateExceeded: StatusCode.RESOURCE_EXHAUSTED,
    errors.IssuerUnknown: StatusCode.UNAVAILABLE,
    errors.RequestTooLarge: StatusCode.INVALID_ARGUMENT,
    errors.BodyOverMemory: StatusCode.RESOURCE_EXHAUSTED,
    errors.Unsupported: StatusCode.UNIMPLEMENTED,
    errors.ModelNotFound: StatusCode.NOT_FOUND,
    errors.ModelNotReady: StatusCode.UNAVAILABLE,
    errors.Overloaded: StatusCode.UNAVAILABLE,
    errors.NoMemoryLeft: StatusCode.UNAVAILABLE,
    errors.WouldBeLate: StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: StatusCode.DEADLINE_EXCEEDED,
    errors.InferenceFailed: StatusCode.INTERNAL,
    errors.ModelUnusable: StatusCode.INTERNAL,
    errors.OutOfMemory: StatusCode.RESOURCE_EXHAUSTED,
    errors.FilesUnreadable: StatusCode.UNAVAILABLE,
    errors.ShuttingDown: StatusCode.UNAVAILABLE,
}

#: Milliseconds to wait before the next try; gRPC clients' own retry policy obeys it.
_RETRY_AFTER = "grpc-retry-pushback-ms"

#: The text travels in a header, which clients limit to 8 KiB; percent-encoding may triple it. Chosen.
_MAX_TEXT_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a failed call: status code, text for the caller, and trailing metadata."""

    code: StatusCode
    text: str
    metadata: tuple[tuple[str, str], ...] = ()


def code_of(kind: type[ServingError]) -> StatusCode:
    """The status code of an error class or of its nearest listed base."""
    return next((GRPC_CODES[base] for base in kind.__mro__ if base in GRPC_CODES), StatusCode.INTERNAL)


def failure_of(error: Exception, method: str, client_id: bytes = b"") -> Failure:
    """The failure that the caller of `method` is told. A bug of ours is logged, and the caller gets no details.

    `client_id`: the client's x-request-id; empty without one, or if it is not known.
    """
    if isinstance(error, ServingError):
        retry = error.retry_after_s
        metadata = () if retry is None else ((_RETRY_AFTER, str(round(retry * 1000))),)
        return Failure(code_of(type(error)), _short(str(error)), metadata)
    if isinstance(error, DecodeError):
        return Failure(StatusCode.INVALID_ARGUMENT, f"The request is not a message that {method} takes")
    logger.error("A bug answered %s", method, exc_info=error, extra={"request_id": shown(client_id)})
    return Failure(StatusCode.INTERNAL, "Internal error")


def _short(text: str) -> str:
    content = text.encode(errors="backslashreplace")
    return content.decode() if len(content) <= _MAX_TEXT_BYTES else content[:_MAX_TEXT_BYTES].decode(errors="ignore")
