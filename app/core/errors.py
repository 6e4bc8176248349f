"""The errors that a caller may see, by cause.

Status codes are not defined here: each protocol maps these classes to its own codes, and a test checks that no
protocol misses one.
"""

from typing import Self


class ServingError(Exception):
    """Base of all errors that a caller may see; `str(error)` is the text that is sent."""

    #: Seconds after which a retry makes sense; None if a retry cannot help.
    retry_after_s: float | None = None

    #: Why access was denied, as it is counted: 'missing', 'malformed', 'unknown', 'expired', 'not_allowed' or 'rate';
    #: empty if the error is of another kind.
    denied: str = ""

    #: The name of whom access was denied, where its credential has proven it.
    caller: str = ""

    def retry_in(self, seconds: float | None) -> Self:
        """The same error. A variable in the frame that raises it would hold what holds the frame: the error."""
        self.retry_after_s = seconds
        return self


class InvalidRequest(ServingError):
    """The caller's fault: the request does not parse or does not fit the model's signature."""


class RequestTooLarge(InvalidRequest):
    """The caller's fault: the request exceeds a configured limit."""


class BodyOverMemory(RequestTooLarge):
    """The request is legal, and larger than what the memory of this server's container has room for."""


class Unsupported(InvalidRequest):
    """The caller's fault: this server or protocol does not support what is asked for; another one may."""


class SignatureNotFound(InvalidRequest):
    """The caller's fault: the model has no signature of that name."""


class PreconditionFailed(InvalidRequest):
    """The caller's fault: the request is right by itself, but does not fit what is served now."""


class Forbidden(ServingError):
    """The caller's fault: this server does not let this caller do what it asks for."""


class NotAllowed(Forbidden):
    """The caller's fault: who it is has been proven, and it may not do this. The text holds nothing secret."""

    denied = "not_allowed"

    def __init__(self, text: str, caller: str = "") -> None:
        super().__init__(text)
        self.caller = caller


class Unauthenticated(ServingError):
    """The caller's fault: the request has no credential that is valid here. The text never says what came.

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
    """The server's state: bodies under way and unread replies take all memory that is for them."""


class WouldBeLate(Overloaded):
    """The server's state: the answer is expected after the deadline. After `retry_after_s` it may be in time again."""


class DeadlineExceeded(ServingError):
    """The deadline passed before the answer was ready."""


class InferenceFailed(ServingError):
    """The model or the device failed on inputs that fit the signature."""


class OutOfMemory(InferenceFailed):
    """The device had not enough memory for a batch; a smaller batch may succeed."""


class ModelUnusable(InferenceFailed):
    """No call of this signature can succeed, whatever its inputs: what the model needs is not there."""


class FilesUnreadable(InferenceFailed):
    """The files of a model could not be read, for a reason that may pass. A later load may succeed."""


class ShuttingDown(ServingError):
    """The server is draining: it finishes accepted requests and rejects new ones."""

    retry_after_s = 1.0
