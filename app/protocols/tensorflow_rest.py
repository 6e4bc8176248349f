"""TensorFlow Serving's REST API: everything under /v1, and POST /predict for the default model.

A plain ASGI application: no framework, no middleware and no task of its own for each request.
Where TensorFlow Serving's clients can tell, it answers as TensorFlow Serving does; it does
better where that cannot hurt them: models are listed, half, bfloat16 and uint16 have a JSON
form, numbers out of range are refused, replies are compact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from app.errors import InvalidRequest, ServingError
from app.events import Listener, RequestFinished
from app.inference import InferenceRequest, ModelSignature
from app.model import Model
from app.protocols.asgi import Receive, Scope, Send
from app.protocols.disconnects import Disconnects
from app.protocols.http import CLIENT_GONE, ClientGone, HttpLimits, Reply, error_reply, internal_error, read_body
from app.protocols.json_arrays import dumps
from app.protocols.json_text import parse
from app.protocols.tensorflow_call import Call
from app.protocols.tensorflow_examples import classify, regress
from app.protocols.tensorflow_metadata import metadata_document, models_document, status_document
from app.protocols.tensorflow_predict import predict, signature_name
from app.protocols.tensorflow_routes import Action, Route, find_route
from app.repository.repository import ModelRepository

log = logging.getLogger(__name__)

PROTOCOL = "tensorflow_rest"

_CALLS: Mapping[Action, Callable[[Mapping[str, Any], ModelSignature], Call]] = {
    Action.PREDICT: predict,
    Action.CLASSIFY: classify,
    Action.REGRESS: regress,
}

_TIMEOUT_HEADER = b"x-request-timeout-ms"


class _Exchange:
    """One request on its way, and what became known of it for those who listen."""

    __slots__ = ("model", "receive", "scope", "signature", "started_s", "version")

    def __init__(self, scope: Scope, receive: Receive, started_s: float) -> None:
        self.scope = scope
        self.receive = receive
        self.started_s = started_s
        self.model = ""
        self.version = 0
        self.signature = ""


class TensorFlowRest:
    """The ASGI application. Tells `listener` of every request once, whatever became of it."""

    def __init__(self, repository: ModelRepository, listener: Listener, limits: HttpLimits) -> None:
        self._repository = repository
        self._listener = listener
        self._limits = limits
        self._disconnects = Disconnects()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        exchange = _Exchange(scope, receive, loop.time())
        code = CLIENT_GONE
        try:
            reply = await self._reply(exchange)
            code = str(reply.status)
            await reply.send(send)
        except ClientGone:
            pass
        finally:
            self._listener(
                RequestFinished(
                    PROTOCOL,
                    code,
                    exchange.model,
                    exchange.version,
                    exchange.signature,
                    loop.time() - exchange.started_s,
                )
            )

    async def _reply(self, exchange: _Exchange) -> Reply:
        """The answer, errors included. Raises ClientGone."""
        try:
            return await self._answer(exchange)
        except ServingError as error:
            return error_reply(error)
        except ClientGone:
            raise
        except Exception:
            log.exception("A bug answered %s %s", exchange.scope["method"], exchange.scope["path"])
            return internal_error()

    async def _answer(self, exchange: _Exchange) -> Reply:
        scope = exchange.scope
        raw_path = scope.get("raw_path")
        route = find_route(scope["method"], raw_path.decode("latin-1") if raw_path else scope["path"])
        match route.action:
            case Action.STATUS:
                return Reply(dumps(status_document(self._repository.statuses(route.model or "", route.version))))
            case Action.METADATA:
                model = self._resolve(route, exchange)
                return Reply(dumps(metadata_document(model.name, model.version, model.signatures)))
            case Action.LIST:
                names = self._repository.names()
                return Reply(dumps(models_document({name: self._repository.statuses(name) for name in names})))
            case _:
                return Reply(await self._infer(route, exchange))

    async def _infer(self, route: Route, exchange: _Exchange) -> bytes:
        deadline_s = exchange.started_s + self._timeout_s(exchange.scope)
        body = await read_body(exchange.scope, exchange.receive, self._limits.max_body_bytes)
        document = parse(body)
        # From here to the batcher nothing awaits, so no version can be swapped in between.
        model = self._resolve(route, exchange)
        name = signature_name(document)
        signature = model.signature(name)
        exchange.signature = name
        call = _CALLS[route.action](document, signature)
        request = InferenceRequest(call.inputs, name, call.outputs, deadline_s)
        with self._disconnects.watch(exchange.receive):
            response = await model.infer(request)
        return call.encode(response.outputs)

    def _resolve(self, route: Route, exchange: _Exchange) -> Model:
        name = self._repository.default_name() if route.model is None else route.model
        model = self._repository.resolve(name, route.version, route.label)
        exchange.model, exchange.version = model.name, model.version
        return model

    def _timeout_s(self, scope: Scope) -> float:
        """The configured timeout, or the caller's where that is shorter. Raises InvalidRequest."""
        longest_ms = self._limits.request_timeout_ms
        for name, value in scope["headers"]:
            if name == _TIMEOUT_HEADER:
                return min(_milliseconds(value), longest_ms) / 1e3
        return longest_ms / 1e3


def _milliseconds(value: bytes) -> float:
    try:
        milliseconds = float(value)
    except ValueError:
        milliseconds = 0.0
    if not milliseconds > 0:
        text = value.decode("latin-1")[:64]
        raise InvalidRequest(f"Header X-Request-Timeout-Ms must be a number of milliseconds above 0, not {text!r}")
    return milliseconds
