"""A live gRPC server on a free loopback port, over real models and batcher, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import numpy as np

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.codecs.protobuf.messages import message_class, service_descriptor
from app.codecs.protobuf.tensor_protos import decode_tensor
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.events import Event, RequestFinished
from app.core.inference import Array, ModelSignature, TensorSpec
from app.model import Model
from app.placement import RequestPlacement
from app.protocols.tensorflow_serving.grpc import PROTOCOL, TensorFlowGrpc
from app.runtime import LoadedModel
from app.runtimes.device_thread import DeviceThread
from app.transports.administration import Administration
from app.transports.grpc.calls import GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel
from tests.support.protocol_fakes import FakeRepository
from tests.support.tensor_protos import encode_tensor

PREDICTION = "tensorflow.serving.PredictionService"
MODEL = "tensorflow.serving.ModelService"
LIMIT = 1 << 20


@dataclass
class Live:
    """The running server, what it told its listener, and a channel to it."""

    server: GrpcServer
    channel: grpc.aio.Channel
    batcher: Batcher
    repository: FakeRepository
    events: list[Event] = field(default_factory=list)
    ready: bool = True

    async def call(self, method: str, request: Any, service: str = PREDICTION, **more: Any) -> Any:
        """Raises grpc.aio.AioRpcError."""
        return await self.start(method, request, service, **more)

    def start(self, method: str, request: Any, service: str = PREDICTION, **more: Any) -> Any:
        descriptor = service_descriptor(service).methods_by_name[method]
        return self.channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=message_class(descriptor.output_type.full_name).FromString,
        )(request, **more)

    async def failure(self, method: str, request: Any, service: str = PREDICTION, **more: Any) -> tuple[Any, str]:
        """The code and the text that the call ends with."""
        try:
            await self.call(method, request, service, **more)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        raise AssertionError(f"{method} did not fail")

    @property
    def finished(self) -> list[RequestFinished]:
        return [event for event in self.events if isinstance(event, RequestFinished)]


@asynccontextmanager
async def live(
    *models: tuple[str, int, LoadedModel],
    device: Any = None,
    options: GrpcOptions | None = None,
    address: str = "",
    channel: grpc.aio.Channel | None = None,
    **more: Any,
) -> AsyncIterator[Live]:
    """`models` are (name, version, loaded); one FakeLoadedModel as m/3 where there are none."""
    device = device or DeviceThread("test", 60.0)
    batcher = Batcher([device], WorkConserving(), BatcherOptions(100))
    served = [
        Model(RequestPlacement(name, version, loaded, BatchSizes.powers_of_two(8)), batcher)
        for name, version, loaded in models or [("m", 3, FakeLoadedModel())]
    ]
    events: list[Event] = []
    repository: Any = FakeRepository(*cast(Any, served))
    of_calls = {name: more.pop(name) for name in ("callers", "readers", "tracing") if name in more}
    calls = GrpcCalls(PROTOCOL, events.append, more.pop("timeout_ms", 30_000.0), **of_calls)
    protocol = TensorFlowGrpc(
        repository, calls, **{"max_message_bytes": LIMIT, "administration": Administration(allowed=True), **more}
    )
    state: list[Live] = []
    options = options or GrpcOptions("127.0.0.1", 0, LIMIT)
    server = GrpcServer(options, protocol.services(), lambda: state[0].ready if state else True)
    await server.start()
    try:
        async with channel or grpc.aio.insecure_channel(address or f"127.0.0.1:{server.port}") as opened:
            state.append(Live(server, opened, batcher, repository, events))
            yield state[0]
    finally:
        await server.stop(0)
        batcher.close()


def with_live(scenario: Callable[[Live], Awaitable[None]], *models: Any, **more: Any) -> None:
    async def main() -> None:
        async with live(*models, **more) as running:
            await scenario(running)

    asyncio.run(main())


class NeverDevice(FakeDevice):
    """Takes work and never finishes it."""

    def __init__(self) -> None:
        super().__init__()
        self.started = asyncio.Event()

    def start(self, work: Any, done: Any) -> None:
        self.started.set()


def spec(name: str = "m", signature: str = "", version: int | None = None, label: str = "") -> Any:
    message = message_class("tensorflow.serving.ModelSpec")(name=name, signature_name=signature)
    if version is not None:
        message.version.value = version
    if label:
        message.version_label = label
    return message


def predict_request(
    inputs: Mapping[str, Array], model_spec: Any = None, wanted: Sequence[str] = (), as_content: bool = True
) -> Any:
    request = message_class("tensorflow.serving.PredictRequest")(model_spec=model_spec or spec(), output_filter=wanted)
    for name, array in inputs.items():
        encode_tensor(array, request.inputs[name], as_content)
    return request


def outputs_of(reply: Any) -> dict[str, Array]:
    return {name: decode_tensor(name, proto, LIMIT) for name, proto in reply.outputs.items()}


def rows(*values: float) -> Array:
    return np.array([[value, value] for value in values], np.float32)


class ClassicModel:
    """Classifies and regresses serialized tf.Examples by their length; `bad` has outputs of another shape."""

    def __init__(self) -> None:
        def strings(name: str, *shape: int | None) -> TensorSpec:
            return TensorSpec(name, np.dtype(object), shape)

        def floats(name: str, *shape: int | None) -> TensorSpec:
            return TensorSpec(name, np.dtype(np.float32), shape)

        examples = {"inputs": strings("inputs", None)}
        both = {"classes": strings("classes", None, None), "scores": floats("scores", None, None)}
        regression = {"outputs": floats("outputs", None, None)}
        flat = {"scores": floats("scores", None)}
        self.signatures: Mapping[str, ModelSignature] = {
            name: ModelSignature(name, inputs, outputs)
            for name, inputs, outputs in (
                ("serving_default", examples, both),
                ("scores", examples, {"scores": both["scores"]}),
                ("regress", examples, regression),
                ("wide", examples, {"outputs": floats("outputs", None, 2), "scores": floats("scores", None)}),
                ("flat", examples, flat),
                ("numbers", {"inputs": floats("inputs", None, 1)}, regression),
                ("uneven", examples, {"classes": both["classes"], "scores": both["scores"]}),
            )
        }
        self.seen: list[bytes] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        examples = inputs["inputs"]
        self.seen += examples.tolist()
        lengths = np.array([[len(each)] for each in examples], np.float32)
        classes = np.array([[b"a", b"\xff"]] * len(examples), object)
        every = {"scores": lengths * [[1, 2]], "classes": classes, "outputs": lengths}
        if signature == "wide":
            every["outputs"] = lengths * [[1, 2]]
        if signature in ("flat", "wide"):
            every["scores"] = lengths[:, 0]
        if signature == "uneven":
            every["scores"] = lengths
        return {
            name: np.asarray(every[name], object if name == "classes" else np.float32)
            for name in outputs or self.signatures[signature].outputs
        }

    def close(self) -> None:
        """Nothing to give back."""


class RefusingModel(FakeLoadedModel):
    """Has much to say where its input is 13."""

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        if (inputs["x"] == 13).any():
            raise InvalidRequest("x must not be 13 " + "é" * 5000)
        return super().run(signature, inputs, outputs)
