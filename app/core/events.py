"""What happened, as frozen facts. The core emits them; metrics and logs listen.

A listener must not block and must not raise; it is called on the event loop. Events are tuples: a request
has one, and a tuple is made in a quarter of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class BatchExecuted(NamedTuple):
    """One call of a model ended, well or not.

    rows: real rows in the batch; padded_rows: rows added to reach an allowed size.
    reason: why the batch was closed: 'full', 'idle', 'delay' or 'drain'.
    queue_s: seconds each of its requests waited, in arrival order.
    failed, failed_rows: how many of its requests, and rows, were answered with an error.
    expired: how many of its requests had no time left when it began; more than 0 is a bug.
    padding_ratio: which share of the elements of the call's inputs was padding, of rows and of inner shapes.
    """

    model: str
    version: int
    signature: str
    rows: int
    padded_rows: int
    reason: str
    compute_s: float
    queue_s: Sequence[float]
    failed: int = 0
    failed_rows: int = 0
    expired: int = 0
    padding_ratio: float = 0.0


class RequestFinished(NamedTuple):
    """A protocol sent its answer. `code` is the protocol's own status; seconds from parse to answer.

    model is '' and version 0 where the request did not get as far as a model.
    """

    protocol: str
    code: str
    model: str
    version: int
    signature: str
    seconds: float


class ModelStateChanged(NamedTuple):
    """A version moved to another state of its life. `error` is empty unless it ended by one."""

    model: str
    version: int
    state: str
    error: str = ""


class ModelPlaced(NamedTuple):
    """A version that is being loaded has a replica on each of these devices."""

    model: str
    version: int
    devices: Sequence[str]


class VariantsChosen(NamedTuple):
    """How a signature of a version that is being loaded will be executed.

    variants: for each batch size the execution variant and how many times as fast it is as the plain SavedModel.
    """

    model: str
    version: int
    signature: str
    variants: Mapping[int, tuple[str, float]]


class ShapesProbed(NamedTuple):
    """Whether requests of different shapes share calls of a signature with free inner shapes, and how or why not."""

    model: str
    version: int
    signature: str
    padded: bool
    explanation: str


Event = BatchExecuted | RequestFinished | ModelStateChanged | ModelPlaced | VariantsChosen | ShapesProbed
Listener = Callable[[Event], None]

#: What to call for each type of event that somebody wants to hear of.
Subscriptions = Mapping[type[Any], Callable[[Any], None]]


def ignore(event: Event) -> None:
    """The listener for those who do not listen."""


def tell_all(*subscriptions: Subscriptions) -> Listener:
    """The listener that tells each event to whoever subscribed to its type, in this order."""
    types = {kind for each in subscriptions for kind in each}
    told = {kind: tuple(each[kind] for each in subscriptions if kind in each) for kind in types}

    def tell(event: Event) -> None:
        for listener in told.get(type(event), ()):
            listener(event)

    return tell
