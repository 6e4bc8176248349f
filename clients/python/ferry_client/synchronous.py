"""The blocking client."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType

import httpx

from ferry_client.arrays import Array, Inputs
from ferry_client.errors import ServingError
from ferry_client.exchange import Exchange, Request, Response, Result
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus
from ferry_client.retries import Deadline, pause_before_retry_s
from ferry_client.transport import LIMITS, ProtocolName, ServerEndpoint, failure, received


class Client:
    """Calls models; safe to share between threads.

    `Client("http://host:8501").predict("digits", {"image": images})["probabilities"]`

    A call takes at most `timeout_s`. The server is told what is left of it with every attempt. Attempts that reach no
    server, and those that it rejects as overloaded, are repeated within that time, never before its Retry-After.
    Every call may raise ServingError.

    Args:
        url: of the server, such as `http://host:8501`; a path in it precedes every path.
        protocol: "v2" for the Open Inference Protocol in binary, "v1-json" for TensorFlow Serving's REST API.
        timeout_s: seconds for a call that sets none of its own.
        attempts: how often a request is sent at most; 1 switches retries off.
        tls: for https: whose certificates to trust, and this client's own; None trusts the authorities of httpx.
        credential: an API key or a token that the server knows, sent with each request; empty for none.
        http: an httpx client of your own, for proxies or other authentication; you close it, and its `verify` takes the
            place of `tls`.
        clock, sleep: replaced by tests.

    Raises:
        ValueError: these arguments cannot work, or not together.
    """

    def __init__(
        self,
        url: str,
        *,
        protocol: ProtocolName = "v2",
        timeout_s: float = 30.0,
        attempts: int = 10,
        tls: ssl.SSLContext | None = None,
        credential: str = "",
        http: httpx.Client | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if tls is not None and http is not None:
            raise ValueError("tls goes without http: give an httpx client of your own this context as `verify`")
        self._server = ServerEndpoint(url, protocol, timeout_s, attempts, credential=credential, clock=clock)
        self._http = http or httpx.Client(limits=LIMITS, verify=tls or True)
        self._owns_http = http is None
        self._sleep = sleep

    def predict(
        self,
        model: str,
        inputs: Inputs,
        *,
        outputs: Sequence[str] = (),
        signature: str = "",
        version: int | str = "",
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """Call a model. Returns its outputs by name; arrays of numbers may be read-only views of the reply.

        Args:
            inputs: arrays by the input's name, or one array for a model with one input. Arrays keep type and shape;
                plain Python values take the model's type. Strings are object arrays of bytes; str is sent as UTF-8.
            outputs: names of the wanted outputs; empty for all.
        """
        deadline = self._server.deadline(timeout_s)
        calls = self._server.calls
        return self._run(
            calls.predict(ModelSpec(model, str(version), signature), inputs, outputs, deadline.left_s()), deadline
        )

    def metadata(
        self, model: str, *, signature: str = "", version: int | str = "", timeout_s: float | None = None
    ) -> ModelMetadata:
        return self._run(
            self._server.calls.metadata(ModelSpec(model, str(version), signature)), self._server.deadline(timeout_s)
        )

    def models(self, *, timeout_s: float | None = None) -> list[ModelStatus]:
        return self._run(self._server.calls.models(), self._server.deadline(timeout_s))

    def ready(self, model: str = "", *, version: int | str = "", timeout_s: float | None = None) -> bool:
        """Whether the server, or this model, can be called now. False, too, if there is no answer."""
        return self._run(self._server.calls.ready(ModelSpec(model, str(version))), self._server.deadline(timeout_s))

    def __repr__(self) -> str:
        return f"<Client {self._server}>"

    def close(self) -> None:
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, exchange: Exchange[Result], deadline: Deadline) -> Result:
        try:
            request = next(exchange)
            while True:
                try:
                    response = self._send(request, deadline)
                except ServingError as error:
                    request = exchange.throw(error)
                else:
                    request = exchange.send(response)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _send(self, request: Request, deadline: Deadline) -> Response:
        attempts = self._server.attempts if request.retried else 1
        attempt = 1
        while True:
            try:
                return self._send_once(request, deadline)
            except ServingError as error:
                pause_s = pause_before_retry_s(error, attempt, attempts, deadline)
                if pause_s is None:
                    raise
            self._sleep(pause_s)
            attempt += 1

    def _send_once(self, request: Request, deadline: Deadline) -> Response:
        try:
            with closing(self._http.send(self._server.outgoing(self._http, request, deadline), stream=True)) as reply:
                body = b"".join(_within(deadline, reply.iter_bytes()))
        except httpx.RequestError as error:
            raise failure(error, deadline) from error
        return received(reply, body)


def _within(deadline: Deadline, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Checks the deadline at each chunk: httpx limits the wait for one chunk, not for all of them."""
    for chunk in chunks:
        deadline.left_s()
        yield chunk
