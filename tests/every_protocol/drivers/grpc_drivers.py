"""Drivers of the gRPC protocols, and their tables of codes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import grpc
from grpc import StatusCode

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensor
from app.core.inference import Array
from app.protocols.open_inference.datatypes import datatype_of
from tests.every_protocol.drivers.driver import Driver, Fault, Question, Rejected
from tests.every_protocol.tensors import as_bytes, from_bytes
from tests.support.tensor_protos import encode_tensor

GRPC_CODES: Mapping[Fault, StatusCode] = {
    Fault.MALFORMED: StatusCode.INVALID_ARGUMENT,
    Fault.TOO_LARGE: StatusCode.RESOURCE_EXHAUSTED,
    Fault.UNKNOWN_MODEL: StatusCode.NOT_FOUND,
    Fault.UNKNOWN_VERSION: StatusCode.NOT_FOUND,
    Fault.UNKNOWN_SIGNATURE: StatusCode.FAILED_PRECONDITION,
    Fault.UNKNOWN_OUTPUT: StatusCode.INVALID_ARGUMENT,
    Fault.WRONG_DTYPE: StatusCode.INVALID_ARGUMENT,
    Fault.WRONG_SHAPE: StatusCode.INVALID_ARGUMENT,
    Fault.WRONG_NAME: StatusCode.INVALID_ARGUMENT,
    Fault.MISSING_INPUT: StatusCode.INVALID_ARGUMENT,
    Fault.NOT_READY: StatusCode.UNAVAILABLE,
    Fault.OVERLOADED: StatusCode.UNAVAILABLE,
    Fault.EXPIRED: StatusCode.DEADLINE_EXCEEDED,
    Fault.DRAINING: StatusCode.UNAVAILABLE,
    Fault.REJECTED_BY_MODEL: StatusCode.INVALID_ARGUMENT,
    Fault.MODEL_FAILED: StatusCode.INTERNAL,
    Fault.NO_MEMORY: StatusCode.RESOURCE_EXHAUSTED,
    Fault.BUG: StatusCode.INTERNAL,
}

#: Rejections inside a stream are a text: the protocol has no field for a code.
IN_STREAM = "error_message"


class _Unary(Driver):
    codes = GRPC_CODES

    @abstractmethod
    def message(self, question: Question) -> Any:
        """The request message."""

    @abstractmethod
    def outputs(self, content: bytes) -> dict[str, Array]:
        """Those of a serialized reply."""

    async def ask(self, question: Question) -> dict[str, Array]:
        return await self._call(self.message(question).SerializeToString(), question.timeout_s)

    async def send(self, body: bytes) -> dict[str, Array]:
        return await self._call(body, None)

    async def _call(self, content: bytes, timeout_s: float | None) -> dict[str, Array]:
        try:
            return self.outputs(await self.live.channel.unary_unary(f"/{self.serves[0]}")(content, timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            raise Rejected(error.code(), error.details() or "", _headers(error)) from None


class TensorFlowContent(_Unary):
    name = "tensorflow grpc, tensor_content"
    serves = ("tensorflow.serving.PredictionService/Predict",)
    as_content = True
    malformed: ClassVar = {
        "cut off": b"\x12\x7f",
        "another wire type": b"\x0f\x0f",
        "no model named": b"",
    }

    def message(self, question: Question) -> Any:
        message = message_class("tensorflow.serving.PredictRequest")(output_filter=question.outputs)
        message.model_spec.name = question.model
        message.model_spec.signature_name = question.signature
        if question.version is not None:
            message.model_spec.version.value = question.version
        for name, array in question.inputs.items():
            encode_tensor(array, message.inputs[name], self.as_content)
        return message

    def outputs(self, content: bytes) -> dict[str, Array]:
        reply = message_class("tensorflow.serving.PredictResponse").FromString(content)
        return {name: decode_tensor(name, proto, 1 << 20) for name, proto in reply.outputs.items()}


class TensorFlowFields(TensorFlowContent):
    name = "tensorflow grpc, typed fields"
    as_content = False


class OpenInferenceRaw(_Unary):
    name = "open inference grpc, raw contents"
    serves = ("inference.GRPCInferenceService/ModelInfer",)
    malformed: ClassVar = {
        "cut off": b"\x2a\x7f",
        "another wire type": b"\x0f\x0f",
        "more contents than inputs": b"\x0a\x01m\x3a\x04\0\0\0\0",
    }

    def message(self, question: Question) -> Any:
        message = message_class("inference.ModelInferRequest")(model_name=question.model)
        message.model_version = "" if question.version is None else str(question.version)
        if question.signature:
            message.parameters["signature_name"].string_param = question.signature
        for name in question.outputs:
            message.outputs.add(name=name)
        for name, array in question.inputs.items():
            tensor = message.inputs.add(name=name, datatype=datatype_of(array.dtype), shape=array.shape)
            self.fill(message, tensor, array)
        return message

    def fill(self, message: Any, tensor: Any, array: Array) -> None:
        message.raw_input_contents.append(as_bytes(array))

    def outputs(self, content: bytes) -> dict[str, Array]:
        return _outputs(message_class("inference.ModelInferResponse").FromString(content))


class OpenInferenceContents(OpenInferenceRaw):
    name = "open inference grpc, typed contents"

    def fill(self, message: Any, tensor: Any, array: Array) -> None:
        field = {"FP32": "fp32_contents", "INT64": "int64_contents"}[tensor.datatype]
        getattr(tensor.contents, field).extend(array.ravel().tolist())


class OpenInferenceStream(OpenInferenceRaw):
    """A stream of one request. Its time is a parameter: gRPC's deadline is the whole stream's."""

    name = "open inference grpc, stream"
    serves = ("inference.GRPCInferenceService/ModelStreamInfer",)
    codes: ClassVar = {**dict.fromkeys(Fault, IN_STREAM), Fault.TOO_LARGE: StatusCode.RESOURCE_EXHAUSTED}
    malformed: ClassVar = {"more contents than inputs": b"\x0a\x01m\x3a\x04\0\0\0\0"}

    def message(self, question: Question) -> Any:
        message = super().message(question)
        if question.timeout_s is not None:
            message.parameters["timeout"].int64_param = round(question.timeout_s * 1e6)
        return message

    async def _call(self, content: bytes, timeout_s: float | None) -> dict[str, Array]:
        call = self.live.channel.stream_stream(f"/{self.serves[0]}")()
        try:
            await call.write(content)
            await call.done_writing()
            answers = [answer async for answer in call]
        except grpc.aio.AioRpcError as error:
            raise Rejected(error.code(), error.details() or "", _headers(error)) from None
        finally:
            call.cancel()
        (reply,) = map(self.reply, answers)
        if reply.error_message:
            raise Rejected(IN_STREAM, reply.error_message)
        return _outputs(reply.infer_response)

    def reply(self, content: bytes) -> Any:
        return message_class("inference.ModelStreamInferResponse").FromString(content)


def _outputs(reply: Any) -> dict[str, Array]:
    return {
        output.name: from_bytes(content, output.datatype, output.shape)
        for output, content in zip(reply.outputs, reply.raw_output_contents, strict=True)
    }


def _headers(error: grpc.aio.AioRpcError) -> Mapping[str, str]:
    return {name: value for name, value in error.trailing_metadata() or () if isinstance(value, str)}


DRIVERS = (TensorFlowContent, TensorFlowFields, OpenInferenceRaw, OpenInferenceContents, OpenInferenceStream)
