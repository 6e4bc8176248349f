"""What the HTTP protocols' drivers share, and their table of codes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import httpx

from app.core.inference import Array
from tests.every_protocol.drivers.driver import Driver, Fault, Question, Rejected

HTTP_CODES: Mapping[Fault, int] = {
    Fault.MALFORMED: 400,
    Fault.TOO_LARGE: 413,
    Fault.UNKNOWN_MODEL: 404,
    Fault.UNKNOWN_VERSION: 404,
    Fault.UNKNOWN_SIGNATURE: 400,
    Fault.UNKNOWN_OUTPUT: 400,
    Fault.WRONG_DTYPE: 400,
    Fault.WRONG_SHAPE: 400,
    Fault.WRONG_NAME: 400,
    Fault.MISSING_INPUT: 400,
    Fault.NOT_READY: 503,
    Fault.OVERLOADED: 503,
    Fault.EXPIRED: 504,
    Fault.DRAINING: 503,
    Fault.REJECTED_BY_MODEL: 400,
    Fault.MODEL_FAILED: 500,
    Fault.NO_MEMORY: 503,
    Fault.BUG: 500,
}


class HttpDriver(Driver):
    """POSTs a body of one media type to the path of a model."""

    codes = HTTP_CODES
    content_type: ClassVar[str]

    @property
    def client(self) -> httpx.AsyncClient:
        return self.live.http

    @abstractmethod
    def path(self, question: Question) -> str:
        """Where the request goes."""

    @abstractmethod
    def encode(self, question: Question) -> tuple[bytes, dict[str, str]]:
        """The body, and headers beside its type."""

    @abstractmethod
    def decode(self, response: httpx.Response) -> dict[str, Array]:
        """The outputs."""

    async def ask(self, question: Question) -> dict[str, Array]:
        body, headers = self.encode(question)
        if question.timeout_s is not None:
            headers = {**headers, "X-Request-Timeout-Ms": str(question.timeout_s * 1000)}
        return self.decode(await self._post(self.path(question), body, headers))

    async def send(self, body: bytes) -> dict[str, Array]:
        return self.decode(await self._post(self.path(Question()), body, {}))

    async def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        response = await self.client.post(path, content=body, headers={"Content-Type": self.content_type, **headers})
        if response.status_code == 200:
            return response
        document = response.json()
        assert document.keys() == {"error"}
        raise Rejected(response.status_code, document["error"], response.headers)


class OverHttp2(HttpDriver):
    """As the driver that it is mixed into, over HTTP/2 with prior knowledge."""

    @property
    def client(self) -> httpx.AsyncClient:
        return self.live.http2
