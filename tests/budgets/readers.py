"""What reads the bodies: the protocols, up to the batcher, for models that nothing computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.codecs.at_once import TakesLong
from app.core.errors import ServingError
from app.core.inference import ModelSignature
from app.core.validation import check_inputs
from app.protocols.open_inference.rest_bodies import read_at_once, read_request, split_body
from app.protocols.open_inference.rest_bodies_in_process import ReadRequest
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.exchange import Computation, Exchange
from app.transports.http.head import RequestHead
from app.transports.http.replies import HttpOptions
from tests.support.protocol_fakes import FakeModel, FakeRepository, specs

LIMIT = 64 * 1024**2
FLOATS = specs(x=("float32", (None, None)))
STRINGS = specs(x=("string", (None,)))
TWO = specs(x=("int64", (None,)), y=("bool", (None, 2)))
EXAMPLES = specs(inputs=("string", (None,)))
PIXELS = specs(x=("float32", (None, None, None, 3)))


class _Model(FakeModel):
    def pads(self, signature: str) -> bool:
        return True


def _model(inputs: Any) -> FakeModel:
    outputs = specs(y=("float32", (None,)), classes=("string", (None, 2)), scores=("float32", (None, 2)))
    return _Model("m", 1, {"serving_default": ModelSignature("serving_default", inputs, outputs)}, {})


@dataclass(frozen=True)
class Way:
    """Reads a body to the end. `at_once` reads it as the event loop does: None if it leaves it to another process."""

    whole: Callable[..., object]
    at_once: Callable[[bytes], object]

    def __call__(self, *body: bytes) -> object:
        return self.whole(*body)


def rest(inputs: Any, media_type: str, path: str = "/v1/models/m:predict") -> Way:
    """What the REST protocol does with a body, up to the batcher."""
    repository: Any = FakeRepository(_model(inputs))
    protocol = TensorFlowRest(repository, lambda _: None, HttpOptions(LIMIT, 1e9))
    signature = ModelSignature("serving_default", inputs, {})

    def read(begin: Callable[[Exchange, bytes], Computation], body: bytes, query: bytes = b"") -> object:
        exchange = Exchange(RequestHead("POST", path, query, [(b"content-type", media_type.encode())]), 0.0)
        try:
            computation = begin(exchange, body)
            check_inputs(signature, computation.request.inputs)
        except ServingError as error:
            return str(error)
        except TakesLong:
            return None
        return computation

    return Way(partial(read, partial(protocol.begin_in_thread, process=None)), partial(read, protocol.begin))


def predicts(media_type: str, *signatures: Any) -> list[Callable[[bytes], object]]:
    return [rest(inputs, media_type) for inputs in signatures]


def quietly(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def quiet(body: bytes) -> object:
        try:
            return read(body)
        except ServingError as error:
            return str(error)
        except TakesLong:
            return None

    return quiet


def v2(inputs: Any) -> Way:
    signature = ModelSignature("serving_default", inputs, specs(y=("float32", (None,))))

    def read(read_request: ReadRequest, body: bytes) -> object:
        length = b"%d" % body.find(b"\n") if b"\n" in body else None
        head, tail = split_body(body, length, None)
        call = read_request(head, tail, {"serving_default": signature}, no_region, lambda seconds: seconds)
        check_inputs(signature, call.request.inputs)
        return call

    return Way(quietly(partial(read, read_request)), quietly(partial(read, read_at_once)))


def no_region(_: object) -> bytes:
    raise AssertionError
