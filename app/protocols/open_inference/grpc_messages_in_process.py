"""ModelInferRequest messages with many fields, read in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from app.core.inference import ModelSignature
from app.protocols.open_inference.grpc_messages import read_message
from app.protocols.open_inference.infer_call import InferCall
from app.transports.grpc.messages_in_process import parse_in_process
from app.transports.http.long_bodies.reading_process import Reader


class _InSharedMemory(Exception):
    """The process has none of the server's shared memory."""


class InferRequestInProcess:
    """A ModelInferRequest that `process` parses. Its methods raise ServingError, TimeoutError and ProcessEnded."""

    def __init__(self, process: Reader, content: bytes) -> None:
        self._process = process
        process.keep(parse_in_process, "inference.ModelInferRequest", "ModelInfer", memoryview(content))

    def head(self) -> tuple[str, str, str]:
        """The model's name and version, and the request's id."""
        return self._process.ask(_head)

    def call(self, signatures: Mapping[str, ModelSignature], deadline: Callable[[float], float]) -> InferCall | None:
        """The call in the message, as by `read_message`; None if the message names shared memory."""
        call = self._process.ask(_call, dict(signatures))
        if call is not None:
            call.request.deadline_s = deadline(call.request.deadline_s)
        return call


def _head(message: Any) -> tuple[str, str, str]:
    return message.model_name, message.model_version, message.id


def _call(message: Any, signatures: Mapping[str, ModelSignature]) -> InferCall | None:
    """The call, with the client's time-out in place of a deadline."""
    try:
        return read_message(message, signatures, _no_region, lambda timeout_s: timeout_s)
    except _InSharedMemory:
        return None


def _no_region(_: object) -> NoReturn:
    raise _InSharedMemory
