"""Models that numpy computes, a repository of them, and a client that speaks ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from app.core.errors import InvalidRequest, ModelNotFound, SignatureNotFound
from app.core.events import Event, RequestFinished
from app.core.inference import NO_TIME, Array, InferenceRequest, InferenceResponse, ModelSignature, TensorSpec
from app.core.interfaces import Cancellable
from app.core.reply import Answer as ComputedAnswer
from app.core.reply import Reply
from app.core.validation import check_inputs
from app.core.versions import VersionState, VersionStatus
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.http.replies import HttpOptions
from tests.support.fakes import fake_time

Compute = Callable[[Mapping[str, Array]], dict[str, Array]]


def specs(**each: tuple[DTypeLike, tuple[int | None, ...] | None]) -> dict[str, TensorSpec]:
    """`specs(x=("float32", (None, 2)))`; 'string' is bytes."""
    return {
        name: TensorSpec(name, np.dtype(object if dtype == "string" else dtype), shape, f"{name}:0")
        for name, (dtype, shape) in each.items()
    }


def signature_of(inputs: dict[str, TensorSpec], outputs: dict[str, TensorSpec], name: str = "x") -> ModelSignature:
    return ModelSignature(name, inputs, outputs)


@dataclass
class FakeModel:
    """`compute` by signature; `requests` are those that reached it."""

    name: str
    version: int
    signatures: dict[str, ModelSignature]
    computes: dict[str, Compute]
    requests: list[InferenceRequest] = field(default_factory=list)
    failure: BaseException | None = None
    never: bool = False
    cancelled: int = 0
    pipeline: bool = False
    missing: str = ""
    note: str = ""

    def signature(self, name: str) -> ModelSignature:
        if name not in self.signatures:
            raise SignatureNotFound(f'Serving signature name: "{name}" not found in signature def')
        return self.signatures[name]

    def pads(self, signature: str) -> bool:
        return False

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        check_inputs(self.signature(request.signature), request.inputs)
        self.requests.append(request)
        if self.failure:
            raise self.failure
        if self.never:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        outputs = self.computes[request.signature](request.inputs)
        wanted = {name: outputs[name] for name in request.outputs or outputs}
        return InferenceResponse(wanted, self.name, self.version, request.signature)

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable:
        check_inputs(self.signature(request.signature), request.inputs)
        task = asyncio.get_running_loop().create_task(self.infer(request))

        def tell(done: asyncio.Task[InferenceResponse]) -> None:
            if done.cancelled():
                return
            error: Any = done.exception()
            if error:
                reply.set_exception(error)
            else:
                reply.set_result(ComputedAnswer(done.result().outputs, NO_TIME))

        task.add_done_callback(tell)
        return task

    def response(self, request: InferenceRequest, answer: ComputedAnswer) -> InferenceResponse:
        return InferenceResponse(answer.outputs, self.name, self.version, request.signature)

    def coalescable_rows(self, _: str) -> int:
        return 0


def model(
    inputs: dict[str, TensorSpec],
    outputs: dict[str, TensorSpec],
    compute: Compute,
    *,
    name: str = "m",
    version: int = 1,
    signature: str = "serving_default",
) -> FakeModel:
    return FakeModel(name, version, {signature: ModelSignature(signature, inputs, outputs)}, {signature: compute})


def echo_model(
    dtype: DTypeLike, shape: tuple[int | None, ...] | None = None, *, output: str = "y", name: str = "m"
) -> FakeModel:
    """Answers its input `x`."""
    return model(specs(x=(dtype, shape)), specs(**{output: (dtype, shape)}), lambda i: {output: i["x"]}, name=name)


class FakeRepository:
    """What the adapters use of a ModelRepository."""

    def __init__(self, *models: FakeModel, default: str = "", failure: Exception | None = None) -> None:
        self.models = {(each.name, each.version): each for each in models}
        self.default = default
        self.failure = failure
        self.error_message = ""

    def names(self) -> Sequence[str]:
        return sorted({name for name, _ in self.models})

    def default_name(self) -> str:
        if self.default or len(self.names()) == 1:
            return self.default or self.names()[0]
        raise InvalidRequest(f"Several models are served: {', '.join(self.names())}")

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> FakeModel:
        if self.failure:
            raise self.failure
        if label is not None:
            raise InvalidRequest(f"Unrecognized servable version label: {label}")
        versions = sorted(v for n, v in self.models if n == name and version in (None, v))
        if not versions:
            wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ModelNotFound(f"Servable not found for request: {wanted}")
        return self.models[name, versions[-1]]

    def statuses(self, name: str, version: int | None = None) -> Sequence[VersionStatus]:
        versions = sorted((v for n, v in self.models if n == name), reverse=True)
        if not versions:
            raise ModelNotFound(f"Could not find any versions of model {name}")
        if version is not None and version not in versions:
            raise ModelNotFound(f"Could not find version {version} of model {name}")
        state = VersionState.END if self.error_message else VersionState.AVAILABLE
        return [VersionStatus(v, state, self.error_message) for v in versions if version in (None, v)]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def error(self) -> str:
        document = self.json()
        assert document.keys() == {"error"}
        text: str = document["error"]
        return text


class Client:
    """Calls the application as a server would; `events` are what it told its listener."""

    def __init__(
        self,
        *models: FakeModel,
        repository: Any = None,
        max_body_bytes: int = 1 << 20,
        timeout_ms: float = 30_000.0,
        readers: ReadingProcesses | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.repository = repository or FakeRepository(*models)
        self.app = TensorFlowRest(
            self.repository, self.events.append, HttpOptions(max_body_bytes, timeout_ms), fake_time, readers=readers
        )

    def get(self, path: str, method: str = "GET") -> Answer:
        return asyncio.run(self.request(method, path))

    def post(self, path: str, body: Any, headers: Mapping[str, str] = {}) -> Answer:
        return asyncio.run(self.request("POST", path, body, headers))

    def predict(self, body: Any, headers: Mapping[str, str] = {}) -> Answer:
        return self.post("/v1/models/m:predict", body, headers)

    async def request(self, method: str, path: str, body: Any = b"", headers: Mapping[str, str] = {}) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        receive = scripted({"type": "http.request", "body": content, "more_body": False})
        await self.app(scope(method, path, {"content-length": str(len(content)), **headers}), receive, send)
        start, end = sent
        answer = Answer(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, end["body"])
        assert answer.headers["content-length"] == str(len(answer.body))
        return answer

    @property
    def finished(self) -> RequestFinished:
        """The only event there is."""
        (event,) = self.events
        assert isinstance(event, RequestFinished)
        return event


def scope(method: str, path: str, headers: Mapping[str, str] = {}) -> dict[str, Any]:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    path, _, query = path.partition("?")
    location = {"path": path, "raw_path": path.encode(), "query_string": query.encode()}
    return {"type": "http", "method": method, **location, "headers": raw}


def scripted(*messages: dict[str, Any]) -> Callable[[], Any]:
    """A receive() that yields the messages, then waits for ever."""
    rest = list(messages)

    async def receive() -> Any:
        if rest:
            return rest.pop(0)
        return await asyncio.get_running_loop().create_future()

    return receive
