"""The Open Inference Protocol over models that numpy computes, and clients of its REST and gRPC forms."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import grpc
import ml_dtypes
import numpy as np

from app.batching.policy import BatchingOptions
from app.codecs.protobuf.messages import message_class, service_descriptor
from app.core.batch_sizes import BatchSizes
from app.core.errors import ModelNotFound, ModelNotReady
from app.core.events import Event, RequestFinished, tell_all
from app.core.inference import ModelSignature
from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.instrumentation.counts import Counts
from app.instrumentation.statistics import ModelStatistics
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.binary_tensors import encode
from app.protocols.open_inference.datatypes import datatype_of
from app.protocols.open_inference.grpc import PROTOCOL, SERVICE, OpenInferenceGrpc
from app.protocols.open_inference.rest import OpenInferenceRest
from app.protocols.open_inference.shared_memory import SharedMemory
from app.transports.administration import Administration
from app.transports.grpc.calls import GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.http.replies import HttpOptions
from tests.support.fakes import fake_time
from tests.support.protocol_fakes import FakeModel, FakeRepository, model, scope, scripted, specs


def sum_model(**more: Any) -> FakeModel:
    """a, b [batch, 2] float32 -> sum, product; signature `total` adds all of a up to a scalar."""
    both = specs(a=("float32", (None, 2)), b=("float32", (None, 2)))
    outputs = specs(sum=("float32", (None, 2)), product=("float32", (None, 2)))
    made = model(both, outputs, lambda i: {"sum": i["a"] + i["b"], "product": i["a"] * i["b"]}, **more)
    total = ModelSignature("total", specs(a=("float32", (None,))), specs(total=("float32", ())))
    made.signatures["total"] = total
    made.computes["total"] = lambda i: {"total": np.asarray(i["a"].sum())}
    return made


class Repository(FakeRepository):
    """Models can be taken out and put back; one named `broken` cannot be loaded, one named `new` has no version."""

    def __init__(self, *models: FakeModel) -> None:
        super().__init__(*models)
        for each in cast(Any, models):
            each.sizes = BatchSizes.powers_of_two(4)
        self.cancelled: dict[tuple[str, int], FakeModel] = {}
        self.loads: list[tuple[str, LoadOverrides]] = []

    def known_names(self) -> Sequence[str]:
        return sorted({name for name, _ in [*self.models, *self.cancelled]} | {"new"})

    async def load(self, name: str, overrides: LoadOverrides = NO_OVERRIDES) -> None:
        if name == "broken":
            raise ModelNotReady("Model broken failed to load: no graph")
        self.loads.append((name, overrides))
        for key in [key for key in self.cancelled if key[0] == name]:
            self.models[key] = self.cancelled.pop(key)

    async def unload(self, name: str) -> None:
        keys = [key for key in self.models if key[0] == name]
        if not keys:
            raise ModelNotFound(f"Model {name} is not in the repository")
        for key in keys:
            self.cancelled[key] = self.models.pop(key)


@dataclass
class FakeHealth:
    """As well as it is told to be."""

    reasons_dead: list[str] = field(default_factory=list)
    reasons_unready: list[str] = field(default_factory=list)
    told_problems: list[str] = field(default_factory=list)

    def dead(self) -> list[str]:
        return self.reasons_dead

    def unready(self) -> list[str]:
        return self.reasons_unready

    def problems(self) -> list[str]:
        return self.told_problems


@dataclass
class RestAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        document = self.json()
        assert document.keys() == {"error"}
        text: str = document["error"]
        return text

    def parts(self) -> tuple[Any, bytes]:
        """The JSON and the bytes behind it."""
        assert self.headers["content-type"] == "application/octet-stream"
        length = int(self.headers["inference-header-content-length"])
        return json.loads(self.body[:length]), self.body[length:]


class World:
    """A server of `models` (`sum_model` where none is given); `events` are what it told its listener.

    Args:
        shared: the folder of shared memory objects; None switches the extension off.
    """

    def __init__(
        self,
        *models: FakeModel,
        shared: Path | None = None,
        max_body_bytes: int = 1 << 20,
        timeout_ms: float = 30_000.0,
        readers: ReadingProcesses | None = None,
        administration: Administration = Administration(allowed=True),  # noqa: B008 - it is frozen
    ) -> None:
        self.repository: Any = Repository(*(models or (sum_model(),)))
        self.health = FakeHealth()
        self.options = BatchingOptions()
        counts = Counts()
        self.statistics = ModelStatistics(counts)
        self._tell = tell_all(counts.subscriptions, self.statistics.subscriptions)
        self.events: list[Event] = []
        regions = SharedMemory(shared) if shared else None
        self.served = OpenInference(
            self.repository, self.statistics.document, self.health, regions, batching=self.batching
        )
        limits = HttpOptions(max_body_bytes, timeout_ms)
        self.rest = OpenInferenceRest(
            self.served, self._hear, limits, fake_time, readers=readers, administration=administration
        )
        calls = GrpcCalls(PROTOCOL, self._hear, timeout_ms, readers=readers)
        self.grpc = OpenInferenceGrpc(self.served, calls, administration=administration)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._tell(event)

    def batching(self, _: str) -> BatchingOptions:
        return self.options

    @property
    def finished(self) -> RequestFinished:
        """The last event."""
        event = self.events[-1]
        assert isinstance(event, RequestFinished)
        return event

    # --- REST ---

    def get(self, path: str, headers: Mapping[str, str] = {}) -> RestAnswer:
        return asyncio.run(self.request("GET", path, b"", headers))

    def post(self, path: str, body: Any = b"", headers: Mapping[str, str] = {}) -> RestAnswer:
        return asyncio.run(self.request("POST", path, body, headers))

    def infer(self, body: Any, headers: Mapping[str, str] = {}, name: str = "m") -> RestAnswer:
        return self.post(f"/v2/models/{name}/infer", body, headers)

    async def request(self, method: str, path: str, body: Any, headers: Mapping[str, str] = {}) -> RestAnswer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        receive = scripted({"type": "http.request", "body": content, "more_body": False})
        await self.rest(scope(method, path, headers), receive, send)
        start, *pieces = sent
        whole = b"".join(bytes(piece["body"]) for piece in pieces)
        answer = RestAnswer(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, whole)
        assert answer.headers["content-length"] == str(len(whole))
        assert [piece.get("more_body", False) for piece in pieces] == [True] * (len(pieces) - 1) + [False]
        return answer

    # --- gRPC ---

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        server = GrpcServer(GrpcOptions("127.0.0.1", 0), self.grpc.services(), lambda: True)
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                yield channel
        finally:
            await server.stop(0)

    def call(self, method: str, **fields: Any) -> Any:
        """One call over a connection of its own. Raises AioRpcError."""

        async def main() -> Any:
            async with self.channel() as channel:
                return await stub(channel, method)(request_message(method, **fields))

        return asyncio.run(main())

    def rejection(self, method: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """The code and the text that a call fails with."""
        try:
            reply = self.call(method, **fields)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        raise AssertionError(f"{method} did not fail: {reply}")


def message(name: str, **fields: Any) -> Any:
    return message_class(f"inference.{name}")(**fields)


def request_message(method: str, **fields: Any) -> Any:
    return message_class(service_descriptor(SERVICE).methods_by_name[method].input_type.full_name)(**fields)


def stub(channel: grpc.aio.Channel, method: str) -> Any:
    descriptor = service_descriptor(SERVICE).methods_by_name[method]
    make = channel.stream_stream if descriptor.client_streaming else channel.unary_unary
    return make(
        f"/{SERVICE}/{method}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=message_class(descriptor.output_type.full_name).FromString,
    )


def json_input(name: str, array: Any, **more: Any) -> dict[str, Any]:
    array = np.asarray(array)
    entry = {"name": name, "shape": list(array.shape), "datatype": datatype_of(array.dtype), "data": array.tolist()}
    return {**entry, **more}


def binary_request(inputs: Mapping[str, Any], **document: Any) -> tuple[bytes, dict[str, str]]:
    """Body and headers: every input behind the JSON."""
    contents = {name: bytes(encode(array)) for name, array in inputs.items()}
    entries = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": datatype_of(array.dtype),
            "parameters": {"binary_data_size": len(contents[name])},
        }
        for name, array in inputs.items()
    ]
    head = json.dumps({"inputs": entries, **document}).encode()
    return head + b"".join(contents.values()), {"Inference-Header-Content-Length": str(len(head))}


BF16 = np.dtype(ml_dtypes.bfloat16)


def values_of(datatype: str) -> Any:
    """A [2, 2] array of that type with its extremes in it."""
    dtype = dtype_of(datatype)
    if datatype == "BYTES":
        array = np.empty((2, 2), object)
        array[:] = [[b"", b"a"], ["\u00e9".encode(), b"\x00\xff" * 9]]
        return array
    if datatype == "BOOL":
        return np.array([[True, False], [False, True]])
    limits = (np.iinfo if dtype.kind in "iu" else ml_dtypes.finfo)(dtype)
    return np.array([[limits.min, limits.max], [0, 1]], dtype)


def dtype_of(datatype: str) -> Any:
    kinds = {"UINT": "uint", "INT": "int", "FP": "float"}
    named = {"BOOL": "bool", "BYTES": "object", "BF16": BF16}
    bits = datatype.lstrip("UINTFP")
    return np.dtype(named[datatype] if datatype in named else kinds[datatype.removesuffix(bits)] + bits)


AB = {"a": np.array([[1, 2], [3, 4]], np.float32), "b": np.array([[5, 6], [7, 8]], np.float32)}
JSON_AB = {"inputs": [json_input(name, array) for name, array in AB.items()]}
