"""TensorFlow Serving's REST API: everything under /v1, and POST /predict for the default model.

A plain ASGI application: no framework, no middleware and no task of its own for each request.
Where TensorFlow Serving's clients can tell, it answers as TensorFlow Serving does; it does
better where that cannot hurt them: models are listed, half, bfloat16 and uint16 have a JSON
form, numbers out of range are rejected, replies are compact, and predict takes other forms than JSON.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from app.codecs.body_formats import JSON, AgreedFormats, agree
from app.codecs.json.parsing import parse
from app.codecs.json.predict_documents import encode_predict, rows_together, signature_name
from app.codecs.json.writing import dumps
from app.core.errors import InvalidRequest, ServingError
from app.core.events import Listener
from app.core.inference import DEFAULT_SIGNATURE, Array, InferenceRequest, ModelSignature
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.streams.predict_stream import PredictStreams
from app.protocols.tensorflow_serving.examples import Call, classify, regress
from app.protocols.tensorflow_serving.metadata import metadata_document, models_document, status_document
from app.protocols.tensorflow_serving.predict_query import apply_query
from app.protocols.tensorflow_serving.routes import Action, Route, find_route
from app.transports.http.exchange import (
    TIMEOUT_HEADER,
    AsgiExchange,
    Clock,
    Coalesced,
    Computation,
    Exchange,
    HttpProtocol,
    Streamed,
    priority_of,
)
from app.transports.http.head import RequestHead
from app.transports.http.replies import HttpLimits, HttpReply, Sendable

_COMPUTING = frozenset({Action.PREDICT, Action.CLASSIFY, Action.REGRESS})

_CLASSIC: Mapping[Action, Callable[[Mapping[str, Any], ModelSignature], Call]] = {
    Action.CLASSIFY: classify,
    Action.REGRESS: regress,
}


class TensorFlowRest(HttpProtocol):
    """The ASGI application.

    Args:
        draining: set when nothing new is taken any more; streams end then.
    """

    name: ClassVar[str] = "tensorflow_rest"

    def __init__(
        self,
        repository: ServedRepository,
        listener: Listener,
        limits: HttpLimits,
        clock: Clock = time.monotonic,
        draining: asyncio.Event | None = None,
    ) -> None:
        super().__init__(listener, limits, clock)
        self._repository = repository
        self._streams = PredictStreams(limits.max_body_bytes, draining or asyncio.Event(), clock)

    async def answer(self, exchange: AsgiExchange) -> Sendable | Streamed:
        route = find_route(exchange.head.method, exchange.head.path)
        match route.action:
            case Action.STATUS:
                return HttpReply(dumps(status_document(self._repository.statuses(route.model or "", route.version))))
            case Action.METADATA:
                model = self._resolve(route)
                exchange.concerns(model)
                return HttpReply(dumps(metadata_document(model.name, model.version, model.signatures)))
            case Action.LIST:
                names = self._repository.names()
                return HttpReply(dumps(models_document({name: self._repository.statuses(name) for name in names})))
            case Action.PREDICTSTREAM:
                return self._streams.begin(exchange, partial(self._resolve, route), self.timeout_s(exchange.head))
            case _:
                return await self.compute(exchange)

    def computes(self, method: str, path: str) -> bool:
        try:
            return find_route(method, path).action in _COMPUTING
        except InvalidRequest:
            return False

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        head = exchange.head
        asked: _Asked = head.understood or _understand(head)
        head.understood = asked
        return self._predict(asked, exchange, body) if asked.predict else self._examine(asked, exchange, body)

    def begin_coalesced(self, head: RequestHead, bodies: Sequence[bytes], started_s: float) -> Coalesced | None:
        """Rows in JSON for the default signature of a model with one input, and all of its outputs."""
        try:
            asked: _Asked = head.understood or _understand(head)
            head.understood = asked
            if not asked.plain:
                return None
            model = self._resolve(asked.route)
        except ServingError:
            return None
        signature = model.signatures.get(DEFAULT_SIGNATURE)
        if signature is None or not (model.coalesces(DEFAULT_SIGNATURE) and signature.batchable):
            return None
        read = rows_together(bodies, signature)
        if read is None:
            return None
        inputs, rows = read
        request = InferenceRequest(inputs, deadline_s=started_s + self.limits.request_timeout_ms / 1e3)
        return Coalesced(model, request, rows, _reply_by_row)

    def _predict(self, asked: _Asked, exchange: Exchange, content: bytes) -> Computation:
        forms = asked.forms
        deadline_s = self.deadline_s(exchange)
        body = forms.request.read(content, self.limits.max_body_bytes)
        if exchange.head.query:
            apply_query(exchange.head.query, body)
        model = self._resolve(asked.route)
        exchange.concerns(model)
        if body.model or body.version is not None:
            body.check_model(model)
        signature = model.signature(body.signature_name or DEFAULT_SIGNATURE)
        exchange.concerns(model, signature.name)
        outputs = body.wanted(signature)
        specs = signature.outputs
        forms.reply.check({name: specs[name] for name in outputs} if outputs else specs)
        request = InferenceRequest(body.inputs(signature), signature.name, outputs, deadline_s, asked.priority)
        write, by_row, kind = forms.reply.write, body.by_row, forms.reply_type
        return Computation(model, request, lambda response: HttpReply(write(response, by_row), content_type=kind))

    def _examine(self, asked: _Asked, exchange: Exchange, content: bytes) -> Computation:
        """Classify and regress: examples in JSON, results in JSON."""
        deadline_s = self.deadline_s(exchange)
        document = parse(content)
        model = self._resolve(asked.route)
        exchange.concerns(model)
        signature = model.signature(signature_name(document))
        exchange.concerns(model, signature.name)
        call = _CLASSIC[asked.route.action](document, signature)
        request = InferenceRequest(call.inputs, signature.name, call.outputs, deadline_s, asked.priority)
        return Computation(model, request, lambda response: HttpReply(call.encode(response.outputs)))

    def _resolve(self, route: Route) -> ServedModel:
        name = self._repository.default_name() if route.model is None else route.model
        return self._repository.resolve(name, route.version, route.label)


class _Asked(NamedTuple):
    """What the head of a request asks for. `plain`: to predict, all of it in JSON, and nothing besides."""

    route: Route
    forms: AgreedFormats
    predict: bool
    priority: int
    plain: bool


def _understand(head: RequestHead) -> _Asked:
    """Raises InvalidRequest, UnsupportedMediaType, NotAcceptable."""
    route = find_route(head.method, head.path)
    predict = route.action is Action.PREDICT
    accept = head.header(b"accept")
    if accept is not None:
        accept = b",".join([value for name, value in head.headers if name == b"accept"])
    forms = agree(head.header(b"content-type"), accept, json_only=not predict)
    in_json = forms.request is JSON and forms.reply is JSON.reply
    priority = priority_of(head)
    plain = predict and in_json and not (head.query or priority) and head.header(TIMEOUT_HEADER) is None
    return _Asked(route, forms, predict, priority, plain)


def _reply_by_row(outputs: Mapping[str, Array]) -> HttpReply:
    return HttpReply(encode_predict(outputs, by_row=True))
