"""What classify and regress have in common in TensorFlow Serving's REST API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.inference import Array


@dataclass(frozen=True, slots=True)
class Call:
    """A request body as understood: what to compute (`outputs`), and how its result is written.

    `encode` takes the outputs by name; it raises InvalidRequest where they have no form in the reply asked for.
    """

    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    encode: Callable[[Mapping[str, Array]], bytes]
