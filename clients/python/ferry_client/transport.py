"""Between exchanges and httpx: what both clients do before a request is sent and after its reply arrived."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Literal

import httpx

from ferry_client.calls import Calls
from ferry_client.errors import ConnectionFailed, InvalidResponse, ServingError, error_of
from ferry_client.exchange import Request, Response
from ferry_client.open_inference import OpenInference
from ferry_client.protocol import ServingProtocol
from ferry_client.retries import Deadline
from ferry_client.tensorflow_json import TensorFlowJson

#: "v2" is the Open Inference Protocol in binary, "v1-json" TensorFlow Serving's REST API.
ProtocolName = Literal["v2", "v1-json"]

_PROTOCOLS: dict[str, Callable[[], ServingProtocol]] = {"v2": OpenInference, "v1-json": TensorFlowJson}

#: No limit on connections: waiting for a free one would cost more than opening another.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)


class ServerEndpoint:
    """The server that a client calls: its URL, its protocol, and the limits of a call.

    Args:
        url: of the server, such as `http://host:8501`; a path in it precedes every path.
        timeout_s: seconds for a call, retries included, unless the call sets its own.
        attempts: how often a request is sent at most.
        credential: an API key or a token, which goes with each request (RFC 6750); empty for none.
        clock: monotonic seconds; tests pass their own.

    Raises:
        ValueError: the URL, the protocol or the credential is not one that this client can use.
    """

    def __init__(
        self,
        url: str,
        protocol: ProtocolName,
        timeout_s: float,
        attempts: int,
        *,
        credential: str,
        clock: Callable[[], float],
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url must start with http:// or https://, not {url!r}")
        if protocol not in _PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {attempts!r}")
        if not (credential.isascii() and credential.isprintable()) or " " in credential:
            raise ValueError("credential must be printable ASCII without spaces")  # and is shown nowhere
        self.calls = Calls(_PROTOCOLS[protocol]())
        self.timeout_s = timeout_s
        self.attempts = attempts
        self._url = url.rstrip("/")
        self._credential = {"authorization": f"Bearer {credential}"} if credential else {}
        self._clock = clock

    def __repr__(self) -> str:
        return f"{self._url}, {type(self.calls.protocol).__name__}"

    def deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline(self.timeout_s if timeout_s is None else timeout_s, self._clock)

    def outgoing(self, http: httpx.Client | httpx.AsyncClient, request: Request, deadline: Deadline) -> httpx.Request:
        """The HTTP request, with the time left. It asks for no compression, which costs more than it saves."""
        left_s = deadline.left_s()
        headers = {
            **request.headers,
            **self._credential,
            "x-request-timeout-ms": str(ceil(left_s * 1e3)),
            "accept-encoding": "identity",
        }
        return http.build_request(
            request.method, self._url + request.path, content=request.body, headers=headers, timeout=left_s
        )


def received(reply: httpx.Response, body: bytes) -> Response:
    """Raises the ServingError that a reply without success means."""
    if not reply.is_success:
        raise error_of(reply.status_code, reply.headers, body)
    return Response(reply.headers, body)


def failure(error: httpx.RequestError, deadline: Deadline) -> ServingError:
    """The error of a request that got no reply."""
    if isinstance(error, httpx.TimeoutException):
        return deadline.exceeded()
    kind = ConnectionFailed if isinstance(error, httpx.TransportError) else InvalidResponse
    return kind(f"{error.request.method} {error.request.url} failed: {str(error) or type(error).__name__}")
