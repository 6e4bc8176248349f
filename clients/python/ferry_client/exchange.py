"""Requests and replies without a connection.

A call is a generator: it yields each request, receives its reply (or its error, thrown in), and returns the result.
So the same logic serves blocking and asyncio callers, and tests need no server.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from ferry_client.errors import InvalidResponse
from ferry_client.models import ModelSpec

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is appended to the server's base URL. `retried` is false if an error is an answer, too."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    retried: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """A reply with a status of success. Names of `headers` are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    def document(self) -> Any:
        """The body as JSON. Raises InvalidResponse."""
        return parse(self.body)


Exchange = Generator[Request, Response, Result]


def parse(text: bytes) -> Any:
    """JSON, with NaN and Infinity as TensorFlow Serving writes them. Raises InvalidResponse."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidResponse(f"The reply is not JSON: {error}") from error


def model_path(prefix: str, spec: ModelSpec) -> str:
    path = f"{prefix}/{quote(spec.name, safe='')}"
    return f"{path}/versions/{quote(spec.version, safe='')}" if spec.version else path
