"""The errors that a caller may see, by cause.

Status codes are not defined here: each protocol maps these classes to its own codes, and a test checks that no
protocol misses one.
"""

from __future__ import annotations

from typing import Self


class ServingError(Exception):
    """Base of all errors that a caller may see; `str(error)` is the text that is sent."""

    #: Seconds after which a retry makes sense; None if a retry cannot help.
    retry_after_s: float | None = None

    #: Why access was denied, as it is counted: 'missing', 'malformed', 'unknown', 'expired', 'not_allowed' or 'rate';
    #: empty if the error is of another kind.
    denied: str = ""

    #: The name of the caller that was denied access, where its credential has proven it.
    caller: str = ""

    def retry_in(self, seconds: float | None) -> Self:
        """This error, with the pause. Raise it at once: a local variable with it would make a reference cycle."""
        self.retry_after_s = seconds
        return self


class InvalidRequest(ServingError):
    """The caller's fault: the request does not parse or does not fit the model's signature."""


class RequestTooLarge(InvalidRequest):
    """The caller's fault: the request exceeds a configured limit."""


class BodyOverMemory(RequestTooLarge):
    """The request is legal, but the memory of this server's container has no room for it."""


class Unsupported(InvalidRequest):
    """The caller's fault: this server or protocol does not support the request; another one may."""


class SignatureNotFound(InvalidRequest):
    """The caller's fault: the model has no signature of that name."""


class PreconditionFailed(InvalidRequest):
    """The caller's fault: the request is right by itself, but does not fit the models that are served now."""


class Forbidden(ServingError):
    """The caller's fault: this server does not permit the request to this caller."""


class NotAllowed(Forbidden):
    """The caller's fault: an authenticated caller may not do this. The text holds nothing secret."""

    denied = "not_allowed"

    def __init__(self, text: str, caller: str = "") -> None:
        super().__init__(text)
        self.caller = caller


class Unauthenticated(ServingError):
    """The caller's fault: the request has no credential that is valid here. The text never quotes the credential.

    Args:
        denied, caller: as the attributes.
    """

    def __init__(self, text: str, denied: str = "unknown", caller: str = "") -> None:
        super().__init__(text)
        self.denied = denied
        self.caller = caller


class RateExceeded(ServingError):
    """The caller sends more requests than it may; after `retry_after_s` it may send one."""

    denied = "rate"


class IssuerUnknown(ServingError):
    """The server's state: a token cannot be checked, since its issuer's keys could not be fetched yet."""

    retry_after_s = 5.0


class ModelNotFound(ServingError):
    """The caller's fault: no such model or version is served here."""


class ModelNotReady(ServingError):
    """The server's state: the model is known, but it is loading or unloading, or its load failed.

    Attributes:
        is_pipeline: it is a pipeline that waits for its models.
    """

    retry_after_s = 1.0

    def __init__(self, text: str, *, is_pipeline: bool = False) -> None:
        super().__init__(text)
        self.is_pipeline = is_pipeline


class Overloaded(ServingError):
    """The server's state: the queue is full. A later retry may help."""

    retry_after_s = 1.0


class NoMemoryLeft(Overloaded):
    """The server's state: bodies under way and unread replies take all of their share of memory."""


class WouldBeLate(Overloaded):
    """The server's state: the answer is expected after the deadline. After `retry_after_s` it may be in time again."""


class DeadlineExceeded(ServingError):
    """The deadline passed before the answer was ready."""


class InferenceFailed(ServingError):
    """The model or the device failed on inputs that fit the signature."""


class OutOfMemory(InferenceFailed):
    """The device had not enough memory for a batch; a smaller batch may succeed."""


class ModelUnusable(InferenceFailed):
    """No call of this signature can succeed, whatever its inputs: the model lacks a part that it needs."""


class FilesUnreadable(InferenceFailed):
    """The files of a model could not be read, for a reason that may pass. A later load may succeed."""


class ShuttingDown(ServingError):
    """The server is draining: it finishes accepted requests and rejects new ones."""

    retry_after_s = 1.0


def drop_frames(error: BaseException) -> None:
    """Drops the frames of an error and of its causes: they keep objects, such as a model, in memory."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
