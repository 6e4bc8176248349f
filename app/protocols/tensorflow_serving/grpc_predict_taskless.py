"""Predict without a task for each call, alone or together with others of one form (app/transports/grpc/taskless.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from app.codecs.at_once import MOST_VALUES, TakesLong
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.predict_request import output_parts, serialize_response
from app.codecs.protobuf.tensor_protos import ENCODING_BY_DTYPE
from app.core.errors import ServingError
from app.core.inference import DEFAULT_SIGNATURE, Array, InferenceRequest, InferenceResponse
from app.core.interfaces import ServedModel, ServedRepository
from app.core.reply import Outputs
from app.protocols.tensorflow_serving.grpc_model_spec import resolve, resolve_signature, version_choice
from app.protocols.tensorflow_serving.grpc_predict_forms import PredictForm, PredictForms
from app.protocols.tensorflow_serving.grpc_predict_inputs import RequestInProcess, predict_inputs, wanted_outputs
from app.transports.grpc.calls import Answer, GrpcCall
from app.transports.grpc.messages_in_process import takes_long
from app.transports.grpc.services import parse_message
from app.transports.grpc.taskless import CallComputation, CallsAsOne, calls_as_one, messages_of
from app.transports.http.long_bodies.reading_process import Reader

_Request = message_class("tensorflow.serving.PredictRequest")


class PredictTaskless:
    """Answers Predict without tasks (a `Taskless`).

    Args:
        max_message_bytes: the most memory for one input.
        tensor_content: outputs are raw bytes instead of lists of numbers.
    """

    def __init__(self, repository: ServedRepository, max_message_bytes: int, tensor_content: bool) -> None:
        self._repository = repository
        self._max_message_bytes = max_message_bytes
        self._tensor_content = tensor_content
        self._forms = PredictForms()
        self.form = self._forms.find

    def begin(self, content: bytes, call: GrpcCall) -> CallComputation:
        form = self._forms.find(content)
        if form is None:
            return self._begin_new(content, call)
        model = resolve(self._repository, form.spec, call)
        signature = resolve_signature(model, form.spec, call)
        return self._computation(model, InferenceRequest(form.read(content), signature.name, form.outputs), call)

    def _begin_new(self, content: bytes, call: GrpcCall) -> CallComputation:
        if takes_long(content, _Request.DESCRIPTOR):
            raise TakesLong
        request = parse_message(_Request, content)
        model = resolve(self._repository, request.model_spec, call)
        signature = resolve_signature(model, request.model_spec, call)
        inputs = predict_inputs(request, signature, self._max_message_bytes, MOST_VALUES)
        outputs = wanted_outputs(request)
        self._forms.learn(content, request, outputs, inputs)
        return self._computation(model, InferenceRequest(inputs, signature.name, outputs), call)

    def read_in_process(self, content: bytes, call: GrpcCall, process: Reader) -> Answer:
        """The answer to a message that another process parses, since parsing takes long: see InProcess."""
        request = RequestInProcess(process, content)
        spec, outputs = request.head()
        model = resolve(self._repository, spec, call)
        signature = resolve_signature(model, spec, call)
        inputs = request.inputs(signature, self._max_message_bytes)
        computation = self._computation(model, InferenceRequest(inputs, signature.name, outputs), call)
        return partial(computation.answer, call)

    def _computation(self, model: ServedModel, request: InferenceRequest, call: GrpcCall) -> CallComputation:
        request.deadline_s, request.priority, request.caller = call.deadline_s, call.priority, call.caller
        return CallComputation(model, request, self._write)

    def _write(self, response: InferenceResponse) -> bytes:
        return serialize_response(response, self._tensor_content)

    def model(self, form: PredictForm) -> str:
        name: str = form.spec.name
        return name

    def begin_coalesced(
        self, form: PredictForm, contents: Sequence[bytes], deadline_s: float, caller: str
    ) -> CallsAsOne | None:
        """One request for messages of a form that give all inputs, and want all outputs, of a quick, batchable model.

        None if the messages or the model are not such.
        """
        spec = form.spec
        try:
            model = self._repository.resolve(spec.name, *version_choice(spec)) if spec.name else None
        except ServingError:
            return None
        name = spec.signature_name or DEFAULT_SIGNATURE
        signature = None if model is None else model.signatures.get(name)
        if model is None or signature is None or form.outputs:
            return None
        write = partial(self._write_together, model, name, form.rows)
        return calls_as_one(form, contents, model, signature, write, deadline_s=deadline_s, caller=caller)

    def _write_together(self, model: ServedModel, signature: str, rows: int, outputs: Outputs) -> Sequence[bytes]:
        """The replies to calls of equally many rows, `rows`. Mostly, only the numbers in the replies differ."""
        count = len(next(iter(outputs.values()))) // rows
        kinds = tuple([(name, array.dtype, array.shape[1:]) for name, array in outputs.items()])
        before = serialize_response(InferenceResponse({}, model.name, model.version, signature), True)
        starts = _starts(before, rows, kinds, self._tensor_content)
        if starts is None:
            return [
                self._write(InferenceResponse(_rows(outputs, first, rows), model.name, model.version, signature))
                for first in range(0, count * rows, rows)
            ]
        numbers = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in outputs.values()]
        return messages_of(count, starts, numbers)


def _rows(outputs: Outputs, first: int, rows: int) -> Outputs:
    return {name: array[first : first + rows] for name, array in outputs.items()}


@lru_cache(maxsize=1024)
def _starts(before: bytes, rows: int, kinds: tuple[Any, ...], tensor_content: bool) -> list[bytes] | None:
    """The bytes before the numbers of each output; None if the numbers are not written as they are in memory.

    Raises InvalidRequest as `output_parts`.
    """
    starts = []
    for name, dtype, shape in kinds:
        array: Array = np.zeros((rows, *shape), dtype)
        parts = output_parts(name, array, tensor_content)
        if dtype.hasobject or not array.size or not (tensor_content or ENCODING_BY_DTYPE[dtype].packed):
            return None
        starts.append(b"".join([before, *parts[:-1]]))
        before = b""
    return starts
