"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType

import httpx
from tenacity import Retrying

from ferry_client.arrays import Array, Inputs
from ferry_client.errors import ServingError
from ferry_client.exchange import Exchange, Request, Response, Result
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus
from ferry_client.retries import WORTHWHILE, Deadline, exhausted, pause_s
from ferry_client.transport import LIMITS, ProtocolName, Target, failure, received


class Client:
    """Calls models; safe to share between threads.

    `Client("http://host:8501").predict("digits", {"image": images})["probabilities"]`

    A call takes `timeout_s` in all: it is passed on to the server, and attempts that fail for want of a connection or
    with 503 are repeated within it, not before the server's Retry-After. Every call may raise ServingError.

    Args:
        url: where the server is; a path in it precedes every path.
        protocol: "v2" for the Open Inference Protocol in binary, "v1-json" for TensorFlow Serving's REST API.
        timeout_s: the time of a call that does not say.
        attempts: how often a request is sent at most; 1 switches retries off.
        http: an httpx client of your own, for TLS, proxies or authentication; you close it.
        clock, sleep: others for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        protocol: ProtocolName = "v2",
        timeout_s: float = 30.0,
        attempts: int = 10,
        http: httpx.Client | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._target = Target(url, protocol, timeout_s, attempts, clock)
        self._http = http or httpx.Client(limits=LIMITS)
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
        """The outputs by name; arrays of numbers may be read-only views of the reply.

        Args:
            inputs: arrays by the input's name, or just the array where the model has one input. Types and shapes go as
                they are; plain Python values take the model's type. Strings are object arrays of bytes; str is UTF-8.
            outputs: what is wanted; everything, where left out.
        """
        deadline = self._target.deadline(timeout_s)
        core = self._target.core
        return self._run(
            core.predict(ModelSpec(model, str(version), signature), inputs, outputs, deadline.left_s()), deadline
        )

    def metadata(
        self, model: str, *, signature: str = "", version: int | str = "", timeout_s: float | None = None
    ) -> ModelMetadata:
        return self._run(
            self._target.core.metadata(ModelSpec(model, str(version), signature)), self._target.deadline(timeout_s)
        )

    def models(self, *, timeout_s: float | None = None) -> list[ModelStatus]:
        return self._run(self._target.core.models(), self._target.deadline(timeout_s))

    def ready(self, model: str = "", *, version: int | str = "", timeout_s: float | None = None) -> bool:
        """Whether the server, or this model, can be called now. No answer means no."""
        return self._run(self._target.core.ready(ModelSpec(model, str(version))), self._target.deadline(timeout_s))

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
        attempts = self._target.attempts if request.retried else 1
        stop = exhausted(deadline, attempts)
        retrying = Retrying(retry=WORTHWHILE, wait=pause_s, stop=stop, sleep=self._sleep, reraise=True)
        return retrying(self._send_once, request, deadline)

    def _send_once(self, request: Request, deadline: Deadline) -> Response:
        try:
            with closing(self._http.send(self._target.outgoing(self._http, request, deadline), stream=True)) as reply:
                body = b"".join(_within(deadline, reply.iter_bytes()))
        except httpx.RequestError as error:
            raise failure(error, deadline) from error
        return received(reply, body)


def _within(deadline: Deadline, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """httpx limits the wait for each chunk, not for all of them."""
    for chunk in chunks:
        deadline.left_s()
        yield chunk
