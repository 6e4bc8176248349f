"""What can go wrong with a request, in terms of whose fault it is and what to do next.

No status codes here: each protocol keeps its own table from these kinds to its codes,
and a test walks the subclasses so that no table lacks one.
"""


class ServingError(Exception):
    """Base of every error a caller may see. `str(error)` is the text sent to the caller."""

    #: Seconds after which a retry is worthwhile; None where a retry cannot help.
    retry_after_s: float | None = None


class InvalidRequest(ServingError):
    """The caller's fault: the request does not parse or does not fit the model's signature."""


class RequestTooLarge(InvalidRequest):
    """The caller's fault: body or rows beyond a configured limit."""


class Unsupported(InvalidRequest):
    """The caller's fault: this server or this protocol has no form for what is asked; another one may."""


class SignatureNotFound(InvalidRequest):
    """The caller's fault: the model has no signature of that name."""


class ModelNotFound(ServingError):
    """The caller's fault: no such model or version is served here."""


class ModelNotReady(ServingError):
    """Nobody's fault: the model is known but still loading, or its load failed."""

    retry_after_s = 1.0


class Overloaded(ServingError):
    """The server's state: the queue has no room. Retrying later may help."""

    retry_after_s = 1.0


class WouldBeLate(Overloaded):
    """The server's state: the answer would foreseeably come too late. After `retry_after_s` it may be in time again."""


class DeadlineExceeded(ServingError):
    """The request's time ran out before its answer was ready."""


class InferenceFailed(ServingError):
    """The model or the device failed on an input that fitted the signature."""


class OutOfMemory(InferenceFailed):
    """The device had no memory for a batch; a smaller batch may succeed."""


class ShuttingDown(ServingError):
    """The server is draining: it finishes what it accepted and takes nothing new."""

    retry_after_s = 1.0
