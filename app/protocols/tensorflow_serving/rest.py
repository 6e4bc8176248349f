"""TensorFlow Serving's REST API: everything under /v1, and POST /predict for the default model.

Replies are TensorFlow Serving's, except where its clients do not notice: models are listed, half, bfloat16 and uint16
are allowed in JSON, numbers out of range are rejected, replies have no white space, and predict accepts other body
formats than JSON.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import ClassVar, NamedTuple

from app.access.access import Permit
from app.access.rules import UNKNOWN, Need, matches
from app.codecs.at_once import MOST_EXAMPLE_VALUES
from app.codecs.body_format import PredictBody
from app.codecs.format_registry import JSON, AgreedFormats, negotiate
from app.codecs.json.predict_documents import (
    encode_each_request,
    encode_each_row,
    encode_predict,
    join_rows,
    signature_name,
)
from app.codecs.json.writing import dumps, takes_long
from app.codecs.predict_query import apply_query
from app.core.errors import InvalidRequest, ModelNotFound, ServingError
from app.core.events import Listener
from app.core.inference import DEFAULT_SIGNATURE, Array, Buffer, InferenceRequest, InferenceResponse, ModelSignature
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.streams.predict_stream import PredictStreams
from app.protocols.tensorflow_serving.bodies_in_process import read_in_process
from app.protocols.tensorflow_serving.examples import CLASSIFY, REGRESS
from app.protocols.tensorflow_serving.metadata import metadata_document, model_document, status_document
from app.protocols.tensorflow_serving.rest_examples import parse_examples, read_examples
from app.protocols.tensorflow_serving.routes import Action, Route, audience_of, find_route, methods_of
from app.protocols.tensorflow_serving.unequal_rows import UnequalRows
from app.transports.http.audience import Audience
from app.transports.http.exchange import AsgiExchange, Coalesced, Computation, Exchange
from app.transports.http.head import TIMEOUT_HEADER, RequestHead
from app.transports.http.http_api import Clock, HttpApi, Streamed, priority_of
from app.transports.http.late_replies import ReplyLater, written
from app.transports.http.long_bodies.reading_process import Reader, ReadHere, ReadingProcess
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.http.replies import HttpOptions, HttpReply, Sendable
from app.transports.memory.body_room import BINARY
from app.transports.rendered_pages import Pieces, RenderedPages

_COMPUTING = frozenset({Action.PREDICT, Action.CLASSIFY, Action.REGRESS})

_EXAMPLES = {Action.CLASSIFY: CLASSIFY, Action.REGRESS: REGRESS}


#: Reads a body of predict, given the most bytes that it may take in memory.
_Read = Callable[[bytes, int], PredictBody]


class TensorFlowRest(HttpApi):
    """The ASGI application of TensorFlow Serving's protocol.

    Args:
        draining: set when the server accepts no new requests; streams end then.
        pages: the rendered pages of the process; by default pages of the list of models alone.
    """

    name: ClassVar[str] = "tensorflow_rest"

    def __init__(
        self,
        repository: ServedRepository,
        listener: Listener,
        options: HttpOptions,
        clock: Clock = time.monotonic,
        draining: asyncio.Event | None = None,
        *,
        readers: ReadingProcesses | None = None,
        pages: RenderedPages | None = None,
    ) -> None:
        super().__init__(listener, options, clock, readers)
        self._repository = repository
        self._pages = pages or RenderedPages()
        self._streams = PredictStreams(options, draining or asyncio.Event(), clock, readers)

    async def answer(self, exchange: AsgiExchange) -> Sendable | Streamed:
        route = find_route(exchange.head.method, exchange.head.path)
        match route.action:
            case Action.STATUS:
                return HttpReply(dumps(status_document(self._repository.statuses(route.model or "", route.version))))
            case Action.METADATA:
                model = self._resolve(route, exchange.permit)
                exchange.record_model(model)
                return HttpReply(dumps(metadata_document(model.name, model.version, model.signatures)))
            case Action.LIST:
                return await self._models(None if exchange.permit is None else exchange.permit.models)
            case Action.PREDICTSTREAM:
                timeout_s, caller = self.timeout_s(exchange.head), self.caller(exchange)
                resolve = partial(self._resolve, route, exchange.permit)
                return self._streams.begin(
                    exchange, resolve, timeout_s, caller, lambda error: self.note_denied(error, exchange)
                )
            case _:
                return await self.compute(exchange)

    async def _models(self, patterns: tuple[str, ...] | None) -> HttpReply:
        """The list of models. `patterns`: the patterns of names that the caller may see; None for all."""
        return HttpReply(await self._pages.ask(("models", patterns), partial(self._render_models, patterns)))

    def _render_models(self, patterns: tuple[str, ...] | None) -> Pieces[bytes]:
        written = []
        for name in self._repository.names():
            if patterns is None or matches(patterns, name):
                with suppress(ModelNotFound):  # the model was unloaded meanwhile
                    written.append(dumps(model_document(name, self._repository.statuses(name))))
                yield
        return b'{"models":[%b]}' % b",".join(written)

    def methods(self, path: str) -> Collection[str]:
        return methods_of(path)

    def computes(self, method: str, path: str) -> bool:
        try:
            return find_route(method, path).action in _COMPUTING
        except InvalidRequest:
            return False

    def needs(self, method: str, path: str) -> Need:
        """The need of a route; for the default model, `_default_name` checks it once the name is known."""
        try:
            route = find_route(method, path)
        except InvalidRequest:
            return UNKNOWN
        return Need(route.action.permission, route.model or "")

    def audience(self, path: str) -> Audience:
        return audience_of(path)

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        head = exchange.head
        parsed: _ComputeHead = head.parsed or self._parse(head)
        if parsed.predict:
            return self._predict(parsed, exchange, body, parsed.read_at_once)
        return self._classify_or_regress(parsed, exchange, body, ReadHere(), MOST_EXAMPLE_VALUES)

    def _parse(self, head: RequestHead) -> _ComputeHead:
        """The parsed head, which equal heads share. Raises InvalidRequest, UnsupportedMediaType, NotAcceptable."""
        route = find_route(head.method, head.path)
        predict = route.action is Action.PREDICT
        accept = head.header(b"accept")
        if accept is not None:
            accept = b",".join([value for name, value in head.headers if name == b"accept"])
        formats = negotiate(head.header(b"content-type"), accept, json_only=not predict)
        in_json = formats.request is JSON and formats.reply is JSON.reply
        priority = priority_of(head)
        plain = predict and in_json and not (head.query or priority) and head.header(TIMEOUT_HEADER) is None
        read = partial(formats.request.read, at_once=True)
        parsed = _ComputeHead(route, formats, predict, read, priority, self.timeout_s(head), plain)
        head.parsed = parsed
        return parsed

    def parses(self, head: RequestHead, body: bytes) -> bool:  # noqa: ARG002 - the format alone decides
        parsed: _ComputeHead = head.parsed or self._parse(head)
        return parsed.formats.request.parsed

    def made_bytes(self, head: RequestHead, body: bytes) -> float:
        parsed: _ComputeHead = head.parsed or self._parse(head)
        made = parsed.formats.request.made_bytes if parsed.predict else None
        return 0.0 if made is None else made(body)

    def begin_in_thread(self, exchange: Exchange, body: bytes, process: ReadingProcess | None) -> Computation:
        head = exchange.head
        parsed: _ComputeHead = head.parsed or self._parse(head)
        if not parsed.predict:
            return self._classify_or_regress(
                parsed, exchange, memoryview(body) if process else body, process or ReadHere()
            )
        body_format = parsed.formats.request
        read_body = body_format.read if process is None else partial(read_in_process, process, body_format)
        return self._predict(parsed, exchange, body, read_body)

    def coalescing_key(self, head: RequestHead) -> object:
        """The model that a plain request is for, by whatever path, label or version."""
        model = self._plain_model(head)
        return None if model is None else id(model)

    def begin_coalesced(self, head: RequestHead, bodies: Sequence[bytes], deadline_s: float) -> Coalesced | None:
        """Accepts rows in JSON, for the default signature of a model with one input, and all of its outputs."""
        # 1. A model that takes several requests in a call, by its default signature.
        model = self._plain_model(head)
        if model is None:
            return None
        signature = model.signatures.get(DEFAULT_SIGNATURE)
        max_rows = model.coalescable_rows(DEFAULT_SIGNATURE)
        if signature is None or not (max_rows and signature.batchable):
            return None

        # 2. The rows of all bodies, one after another.
        joined = join_rows(bodies, signature)
        if joined is None:
            return None
        inputs, rows = joined
        request = InferenceRequest(inputs, deadline_s=deadline_s)

        # 3. The replies: one by one, or several at once.
        def reply(_: int, outputs: dict[str, Array], may_be_long: bool) -> Sendable | ReplyLater:
            def write() -> Sendable:
                return HttpReply(encode_predict(outputs, by_row=True, in_slices=may_be_long))

            return written(outputs, write) if may_be_long else write()

        def write_each(numbers: slice, outputs: Mapping[str, Array]) -> Sequence[bytes] | None:
            return encode_each_request(outputs, rows[numbers])

        return Coalesced(model, request, rows, max_rows, reply, write_each)

    def _predict(self, parsed: _ComputeHead, exchange: Exchange, content: bytes, read: _Read) -> Computation:
        # 1. Read the body, in its own format.
        formats = parsed.formats
        body = read(content, self.options.most_bytes(BINARY))
        if exchange.head.query:
            apply_query(exchange.head.query, body)

        # 2. Resolve model, signature and outputs.
        model = self._resolve(parsed.route, exchange.permit)
        exchange.record_model(model)
        if body.model or body.version is not None:
            body.check_model(model)
        signature = model.signature(body.signature_name or DEFAULT_SIGNATURE)
        exchange.asked = *exchange.asked[:2], signature.name
        outputs = body.wanted(signature) if body.outputs else ()
        specs = signature.outputs

        # 3. Check that the reply's format can represent the outputs; then make the inputs.
        formats.reply.check({name: specs[name] for name in outputs} if outputs else specs)
        request = InferenceRequest({}, signature.name, outputs, exchange.started_s + parsed.timeout_s, parsed.priority)
        try:
            request.inputs = body.inputs(signature)
        except InvalidRequest:
            unequal = _unequal_rows(body, model, signature) if formats.reply is JSON.reply else None
            if unequal is None:
                raise
            return _computation_of(unequal, request, by_row=body.by_row)

        # 4. The reply, in its own format.
        write, by_row, kind = formats.reply.write, body.by_row, formats.reply_type
        if by_row and signature.ragged_outputs and formats.reply is JSON.reply:
            write = partial(_write_ragged_rows, signature)

        def reply(response: InferenceResponse) -> Sendable | ReplyLater:
            def made() -> Sendable:
                return HttpReply(write(response, by_row), content_type=kind)

            if not takes_long(response.outputs):
                return made()
            return ReplyLater(asyncio.to_thread(made), response.outputs, text=formats.reply is JSON.reply)

        return Computation(model, request, reply)

    def _classify_or_regress(
        self, parsed: _ComputeHead, exchange: Exchange, body: Buffer, reader: Reader, most: float = inf
    ) -> Computation:
        """The computation of a request with examples in JSON, whose results are JSON; `most` values are read."""
        reader.keep(parse_examples, body, most)
        name = reader.ask(signature_name)
        model = self._resolve(parsed.route, exchange.permit)
        exchange.record_model(model)
        signature = model.signature(name)
        exchange.asked = *exchange.asked[:2], signature.name
        call = reader.ask(read_examples, _EXAMPLES[parsed.route.action], signature)
        deadline_s = exchange.started_s + parsed.timeout_s
        request = InferenceRequest(call.inputs, signature.name, call.outputs, deadline_s, parsed.priority)
        return Computation(model, request, lambda response: HttpReply(call.encode(response.outputs)))

    def _plain_model(self, head: RequestHead) -> ServedModel | None:
        """The model that a plain request is for; None for any other request, or without such a model."""
        try:
            parsed: _ComputeHead = head.parsed or self._parse(head)
            return self._resolve(parsed.route, head.permit) if parsed.plain else None
        except ServingError:
            return None

    def _resolve(self, route: Route, permit: Permit | None) -> ServedModel:
        name = route.model
        if name is None:
            name = self._default_name(permit)
        return self._repository.resolve(name, route.version, route.label)

    def _default_name(self, permit: Permit | None) -> str:
        try:
            name = self._repository.default_name()
        except InvalidRequest:  # whose text has the names of all models
            if permit is not None:
                permit.check_every_model()
            raise
        if permit is not None:
            permit.check_model(name)
        return name


def _unequal_rows(body: PredictBody, model: ServedModel, signature: ModelSignature) -> UnequalRows | None:
    """The rows of a body whose inputs could not be read, if they differ in shape and the model pads; else None."""
    if body.row_groups is None or not (signature.batchable and model.pads(signature.name)):
        return None
    try:
        groups = body.row_groups(signature)
    except ServingError:
        return None
    return UnequalRows(model, groups) if groups else None


def _computation_of(unequal: UnequalRows, request: InferenceRequest, *, by_row: bool) -> Computation:
    def reply(_: InferenceResponse) -> Sendable | ReplyLater:
        return written(unequal.arrays, lambda: HttpReply(encode_each_row(unequal.outputs, by_row)))

    return Computation(unequal, request, reply)


def _write_ragged_rows(signature: ModelSignature, response: InferenceResponse, by_row: bool) -> bytes:
    """The reply of a signature with ragged outputs, in rows; otherwise as the JSON format's `write`."""
    outputs = response.outputs
    return encode_predict(outputs, by_row, in_slices=takes_long(outputs), ragged=signature.ragged_outputs)


class _ComputeHead(NamedTuple):
    """The head of a request to compute, parsed. Equal heads are parsed once.

    Attributes:
        predict: the method is predict, not classify or regress.
        read_at_once: reads a body of predict on the event loop.
        timeout_s: the time that the request has from its arrival.
        plain: the request is predict, in JSON both ways, without query, timeout or priority.
    """

    route: Route
    formats: AgreedFormats
    predict: bool
    read_at_once: _Read
    priority: int
    timeout_s: float
    plain: bool
