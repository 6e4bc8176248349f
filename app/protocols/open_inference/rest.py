"""The Open Inference Protocol v2 over REST, with Triton's extensions: everything under /v2.

Replies are Triton's, except where its clients do not notice: FP16 and BF16 are allowed in JSON, health and readiness
have a body, and a wrong method gives 405 instead of 404.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar, NamedTuple

from app.access.rules import UNKNOWN, Need
from app.codecs.at_once import SHORT_BYTES
from app.codecs.charsets import names_another
from app.codecs.errors import UnsupportedMediaType
from app.codecs.json.writing import takes_long
from app.core.errors import ServingError
from app.core.events import Listener
from app.core.inference import Array, InferenceRequest, InferenceResponse
from app.core.interfaces import ServedModel
from app.protocols.open_inference.api import OpenInference, Patterns, cuda_regions, reject_cuda_memory
from app.protocols.open_inference.documents.json_documents import parameters_field, parse_optional, text_field
from app.protocols.open_inference.infer_call import InferCall, choose_signature, make_call
from app.protocols.open_inference.parameters import RequestParameters, flag, number
from app.protocols.open_inference.rest_bodies import (
    ContentReply,
    document_reply,
    infer_reply,
    page_reply,
    read_at_once,
    read_joined,
    read_request,
    split_body,
    write_each,
)
from app.protocols.open_inference.rest_bodies_in_process import ReadRequest, read_in_process
from app.protocols.open_inference.routes import (
    ADMINISTRATION,
    Action,
    NoSuchRoute,
    Route,
    audience_of,
    find_route,
    methods_of,
)
from app.protocols.open_inference.shared_memory import WriteRegion
from app.transports.administration import Administration
from app.transports.http.audience import Audience
from app.transports.http.compression import MIN_BYTES, choose_encoding
from app.transports.http.exchange import AsgiExchange, Coalesced, Computation, Exchange
from app.transports.http.head import TIMEOUT_HEADER, RequestHead
from app.transports.http.http_api import LONG_BODY_BYTES, Clock, HttpApi, priority_of
from app.transports.http.late_replies import ReplyLater
from app.transports.http.long_bodies.reading_process import ReadingProcess
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.http.methods import allow
from app.transports.http.rejections import BinaryOutline, Outline, json_outline
from app.transports.http.replies import HttpOptions, HttpReply, Sendable, error_body

#: The header of a body with binary tensors: the length of the JSON before them.
_JSON_LENGTH = b"inference-header-content-length"

#: Actions whose reply is compressed already, once for all callers.
_PAGES = frozenset({Action.STATISTICS, Action.INDEX})


class OpenInferenceRest(HttpApi):
    """The ASGI application of the Open Inference Protocol."""

    name: ClassVar[str] = "open_inference_rest"

    def __init__(
        self,
        served: OpenInference,
        listener: Listener,
        options: HttpOptions,
        clock: Clock = time.monotonic,
        *,
        readers: ReadingProcesses | None = None,
        administration: Administration = Administration(),  # noqa: B008 - it is frozen
    ) -> None:
        super().__init__(listener, options, clock, readers)
        self._served = served
        self._administration = administration
        #: Makes the document of the reply, by action: those that neither read a body nor await.
        self._documents: Mapping[Action, Callable[[Route], object]] = {
            Action.SERVER: lambda _: served.server_metadata(),
            Action.METADATA: lambda route: served.model_metadata(route.name, route.version),
            Action.MODEL_READY: lambda route: {
                "name": served.resolve_ready(route.name, route.version).name,
                "ready": True,
            },
            Action.CUDA_STATUS: lambda route: cuda_regions(route.name),
            Action.CUDA_REGISTER: reject_cuda_memory,
            Action.CUDA_UNREGISTER: lambda _: {},
        }
        #: Makes the reply, by action: all others but INFER, which `compute` answers.
        self._answers: Mapping[Action, Callable[[Route, AsgiExchange], Awaitable[ContentReply]]] = {
            Action.LIVE: self._probe,
            Action.READY: self._probe,
            Action.CONFIG: self._config,
            Action.STATISTICS: self._statistics,
            Action.INDEX: self._index,
            Action.LOAD: self._load,
            Action.UNLOAD: self._unload,
            Action.MEMORY_STATUS: self._memory_status,
            Action.MEMORY_REGISTER: self._register_memory,
            Action.MEMORY_UNREGISTER: self._unregister_memory,
        }

    async def answer(self, exchange: AsgiExchange) -> Sendable:
        # 1. The route; 404 without such a path, 405 without such a method.
        try:
            route = find_route(exchange.head.method, exchange.head.path)
        except NoSuchRoute as error:
            if not error.allowed:
                return HttpReply(error_body(str(error)), 404)
            return HttpReply(error_body(str(error)), 405, ((b"allow", allow(error.allowed).encode()),))

        # 2. Infer.
        if route.action is Action.INFER:
            _check_charset(exchange.head)
            return await self.compute(exchange)

        # 3. Any other action.
        if route.action in ADMINISTRATION:
            self._administration.check_http(exchange.head.headers)
        if route.action in self._documents:
            reply = document_reply(self._documents[route.action](route))
        else:
            reply = await self._answers[route.action](route, exchange)
            if route.action in _PAGES:
                return reply
        return await reply.compressed(choose_encoding(exchange.head.header(b"accept-encoding")))

    def methods(self, path: str) -> Collection[str]:
        return methods_of(path)

    def computes(self, method: str, path: str) -> bool:
        try:
            return find_route(method, path).action is Action.INFER
        except NoSuchRoute:
            return False

    def needs(self, method: str, path: str) -> Need:
        try:
            return find_route(method, path).need
        except NoSuchRoute:
            return UNKNOWN

    def audience(self, path: str) -> Audience:
        return audience_of(path)

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        return self._begin(exchange, body, read_at_once)

    def _begin(self, exchange: Exchange, body: bytes, read: ReadRequest) -> Computation:
        head = exchange.head
        parsed: _InferHead = head.parsed or _parse_head(head)
        head.parsed = parsed
        latest_s = self.deadline_s(exchange)

        def deadline(timeout_s: float) -> float:
            return min(latest_s, exchange.started_s + timeout_s) if timeout_s else latest_s

        model = self._served.resolve(parsed.route.name, parsed.route.version)
        exchange.record_model(model)
        text, tail = split_body(body, parsed.json_length, parsed.content_type)
        read_region, write_region = self._served.region_access(exchange.address, exchange.permit)
        call = read(text, tail, model.signatures, read_region, deadline)
        call.request.priority = call.request.priority or parsed.priority
        exchange.record_model(model, call.request.signature)
        encoding = parsed.encoding
        return Computation(model, call.request, lambda response: self._reply_to(call, response, encoding, write_region))

    def _reply_to(
        self,
        call: InferCall,
        response: InferenceResponse,
        encoding: str | None,
        write_region: WriteRegion,
        *,
        may_be_long: bool = True,
    ) -> Sendable | ReplyLater:
        async def later() -> ContentReply:
            content = await asyncio.to_thread(infer_reply, call, response, write_region)
            return await content.compressed(encoding)

        if may_be_long and call.in_json and takes_long(response.outputs):
            return ReplyLater(later(), response.outputs)
        content = infer_reply(call, response, write_region)
        if encoding is None or content.size < MIN_BYTES:
            return content
        return ReplyLater(content.compressed(encoding))

    def parses(self, head: RequestHead, body: bytes) -> bool:
        head.parsed = head.parsed or _parse_head(head)
        parsed: _InferHead = head.parsed
        text, _ = split_body(body, parsed.json_length, parsed.content_type)
        return len(text) >= SHORT_BYTES or len(body) < LONG_BODY_BYTES

    def begin_in_thread(self, exchange: Exchange, body: bytes, process: ReadingProcess | None) -> Computation:
        if process is None:
            return self._begin(exchange, body, read_request)
        return self._begin(exchange, body, read_in_process(process, self._served.check_regions))

    def outline(self, head: RequestHead, body: bytes) -> Outline | None:
        """What later bodies must share with this one to ask for no less work (rejections.py); None if none can tell.

        If a shape, a time-out or a priority may follow the last name in the JSON, the whole body must be the same.
        """
        parsed: _InferHead = head.parsed
        if parsed.json_length is not None:
            return BinaryOutline.of(body, int(parsed.json_length))
        in_json = json_outline(head.header(b"content-type"), body)
        if in_json is None or in_json.names.endswith(b'"data"'):
            return in_json
        return BinaryOutline.of(body, len(body))

    def coalescing_key(self, head: RequestHead) -> object:
        """The id of the model of a plain request, and the encoding of its reply; None for any other request."""
        plain = self._plain(head)
        return None if plain is None else (id(plain[0]), plain[1])

    def begin_coalesced(self, head: RequestHead, bodies: Sequence[bytes], deadline_s: float) -> Coalesced | None:
        """Accepts plain requests (rest_bodies.py), for the default signature of a model and all of its outputs."""
        # 1. The model of the head; none is coalesced unless its default signature is best called for several at once.
        plain = self._plain(head)
        if plain is None:
            return None
        model, encoding = plain
        try:
            signature = choose_signature(model.signatures)
            # How each reply is written: this call has no inputs, and its deadline does not count.
            call = make_call({}, (), signature, RequestParameters(), deadline_s=inf)
        except ServingError:
            return None
        max_rows = model.coalescable_rows(signature.name)
        if not (max_rows and signature.batchable):
            return None

        # 2. The rows of all bodies, one after another.
        joined = read_joined(bodies, signature)
        if joined is None:
            return None
        request = InferenceRequest(joined.inputs, signature.name, deadline_s=deadline_s)

        # 3. The replies: one by one, or several at once where none is compressed.
        def reply(number: int, outputs: dict[str, Array], may_be_long: bool) -> Sendable | ReplyLater:
            # A plain request names no region, so who asks does not matter for region_access.
            one = replace(call, id=joined.ids[number])
            response = InferenceResponse(outputs, model.name, model.version, signature.name)
            return self._reply_to(
                one, response, encoding, self._served.region_access("", None)[1], may_be_long=may_be_long
            )

        def write(numbers: slice, outputs: Mapping[str, Array]) -> Sequence[bytes] | None:
            computed = {name: outputs[name] for name in signature.outputs}
            written = write_each(model.name, model.version, computed, joined.rows[numbers], joined.ids[numbers])
            if written is None or (encoding is not None and max(map(len, written)) >= MIN_BYTES):
                return None  # then `reply` writes them one by one
            return written

        return Coalesced(model, request, joined.rows, max_rows, reply, write)

    def _plain(self, head: RequestHead) -> tuple[ServedModel, str | None] | None:
        """The model that a plain request is for, and the encoding of its reply; None for any other request."""
        try:
            parsed: _InferHead = head.parsed or _parse_head(head)
            head.parsed = parsed
            if not parsed.plain:
                return None
            return self._served.resolve(parsed.route.name, parsed.route.version), parsed.encoding
        except (ServingError, NoSuchRoute):
            return None

    async def _probe(self, route: Route, _: AsgiExchange) -> ContentReply:
        live = route.action is Action.LIVE
        holds = self._served.live() if live else self._served.ready()
        return document_reply({"live" if live else "ready": holds}, 200 if holds else 503)

    async def _config(self, route: Route, _: AsgiExchange) -> ContentReply:
        return document_reply(await self._served.model_config(route.name, route.version))

    async def _statistics(self, route: Route, exchange: AsgiExchange) -> ContentReply:
        models, encoding = _models_and_encoding(exchange)
        return page_reply(
            await self._served.model_statistics(route.name, route.version, models=models, encoding=encoding)
        )

    async def _index(self, _: Route, exchange: AsgiExchange) -> ContentReply:
        ready = flag(parse_optional(await self.read_short(exchange)), "ready")
        models, encoding = _models_and_encoding(exchange)
        return page_reply(await self._served.repository_index(ready, models=models, encoding=encoding))

    async def _load(self, route: Route, exchange: AsgiExchange) -> ContentReply:
        document = parse_optional(await self.read_short(exchange))
        await self._served.load_model(route.name, parameters_field(document))
        return document_reply({})

    async def _unload(self, route: Route, exchange: AsgiExchange) -> ContentReply:
        parse_optional(await self.read_short(exchange))
        await self._served.unload_model(route.name)
        return document_reply({})

    async def _memory_status(self, route: Route, exchange: AsgiExchange) -> ContentReply:
        return document_reply(self._served.region_documents(route.name, exchange.permit))

    async def _register_memory(self, route: Route, exchange: AsgiExchange) -> ContentReply:
        self._served.check_regions()
        document = parse_optional(await self.read_short(exchange))
        key, offset, size = text_field(document, "key"), number(document, "offset"), number(document, "byte_size")
        await self._served.register_region(route.name, key, offset, size, exchange.client, permit=exchange.permit)
        return document_reply({})

    async def _unregister_memory(self, route: Route, exchange: AsgiExchange) -> ContentReply:
        await self._served.unregister_region(route.name, exchange.client, permit=exchange.permit)
        return document_reply({})


def _models_and_encoding(exchange: AsgiExchange) -> tuple[Patterns, str | None]:
    """The models that the caller may see, and the encoding that it accepts."""
    permit = exchange.permit
    return None if permit is None else permit.models, choose_encoding(exchange.head.header(b"accept-encoding"))


class _InferHead(NamedTuple):
    """The head of an infer request, parsed. Equal heads are parsed once.

    Attributes:
        plain: the request is JSON alone, without query, timeout or priority.
    """

    route: Route
    json_length: bytes | None
    content_type: bytes | None
    encoding: str | None
    priority: int
    plain: bool


def _parse_head(head: RequestHead) -> _InferHead:
    """The parsed head. Raises InvalidRequest for a wrong priority, NoSuchRoute for an unknown path or method."""
    json_length, content_type = head.header(_JSON_LENGTH), head.header(b"content-type")
    priority = priority_of(head)
    binary = json_length is not None or (content_type or b"").startswith(b"application/octet-stream")
    plain = not (binary or head.query or priority) and head.header(TIMEOUT_HEADER) is None
    encoding = choose_encoding(head.header(b"accept-encoding"))
    return _InferHead(find_route(head.method, head.path), json_length, content_type, encoding, priority, plain)


def _check_charset(head: RequestHead) -> None:
    """Checks the charset of a JSON that binary tensors follow: such a body is not converted to UTF-8.

    Raises UnsupportedMediaType: the head names another charset.
    """
    if head.header(_JSON_LENGTH) is not None and names_another(head.header(b"content-type")):
        raise UnsupportedMediaType(
            "Content-Type names another charset than utf-8; expected utf-8 where binary tensors follow the JSON"
            " (Inference-Header-Content-Length)"
        )
