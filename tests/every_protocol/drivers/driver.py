"""The interface of a protocol's test client, and the kinds of errors that each protocol has a code for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar

import numpy as np

from app.core.inference import Array
from tests.every_protocol.live import Live


class Fault(Enum):
    """Kinds of errors."""

    MALFORMED = auto()
    TOO_LARGE = auto()
    UNKNOWN_MODEL = auto()
    UNKNOWN_VERSION = auto()
    UNKNOWN_SIGNATURE = auto()
    UNKNOWN_OUTPUT = auto()
    WRONG_DTYPE = auto()
    WRONG_SHAPE = auto()
    WRONG_NAME = auto()
    MISSING_INPUT = auto()
    NOT_READY = auto()
    OVERLOADED = auto()
    EXPIRED = auto()
    DRAINING = auto()
    REJECTED_BY_MODEL = auto()
    MODEL_FAILED = auto()
    NO_MEMORY = auto()
    BUG = auto()


class Rejected(Exception):
    """The server answered with an error: its code in the protocol's terms, its text, and the rest of the answer."""

    def __init__(self, code: object, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.headers = headers or {}


def rows(*values: float, width: int = 2) -> Array:
    """A row of equal numbers for each value."""
    return np.repeat(np.array(values, np.float32)[:, None], width, axis=1)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One request to infer, in no protocol's terms."""

    inputs: Mapping[str, Array] = field(default_factory=lambda: {"features": rows(1.0)})
    model: str = "m"
    version: int | None = None
    signature: str = ""
    outputs: tuple[str, ...] = ()
    timeout_s: float | None = None


class Driver(ABC):
    """A client of one protocol.

    `serves` is where it goes in: the first segment of a path and the media type of its bodies, or a gRPC method.
    `codes` is the protocol's whole table; what cannot go wrong for this driver is in `lacks`, with the reason.
    `malformed` are bodies by what is wrong with them.
    """

    name: ClassVar[str]
    serves: ClassVar[tuple[str, ...]]
    codes: ClassVar[Mapping[Fault, Any]]
    lacks: ClassVar[Mapping[Fault, str]] = {}
    malformed: ClassVar[Mapping[str, bytes]]
    #: The most rows of one request.
    most_rows: ClassVar[int] = 3
    #: Without this the protocol's requests are always for all outputs.
    chooses_outputs: ClassVar[bool] = True
    wrong_dtype: ClassVar[Array] = np.array([[1, 2]], np.int64)
    #: What the rejection of that one names.
    names_dtype: ClassVar[str] = "features"

    def __init__(self, live: Live) -> None:
        self.live = live

    @abstractmethod
    async def ask(self, question: Question) -> dict[str, Array]:
        """The outputs by name; where the protocol names none, ''. Raises Rejected."""

    @abstractmethod
    async def send(self, body: bytes) -> object:
        """The body as it is, to where a request for `m` goes. Raises Rejected."""
