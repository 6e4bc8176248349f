"""ModelInfer without a task for each call, alone or together with others of one form (app/transports/grpc/taskless.py).

A ModelInferRequest is plain if its tensors are numbers in `raw_input_contents`, and it has neither id nor parameters:
then its form says all but the numbers (app/codecs/protobuf/message_forms.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NoReturn

import numpy as np

from app.codecs.at_once import MOST_VALUES, TakesLong
from app.codecs.protobuf.message_forms import (
    FormInput,
    MessageForm,
    MessageForms,
    NotPlain,
    fields_of,
    is_short_beside,
)
from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import field_start
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import Array, InferenceRequest, InferenceResponse, ModelSignature
from app.core.interfaces import ServedModel
from app.core.reply import Outputs
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.binary_tensors import encode
from app.protocols.open_inference.datatypes import datatype_of
from app.protocols.open_inference.grpc_messages import read_message, write_message
from app.protocols.open_inference.grpc_messages_in_process import InferRequestInProcess
from app.protocols.open_inference.infer_call import InferCall
from app.transports.grpc.calls import Answer, GrpcCall
from app.transports.grpc.messages_in_process import takes_long
from app.transports.grpc.services import parse_message
from app.transports.grpc.taskless import CallComputation, CallsAsOne, calls_as_one, messages_of
from app.transports.http.long_bodies.reading_process import Reader

_Request = message_class("inference.ModelInferRequest")
_FIELDS = {field.name: field.number for field in _Request.DESCRIPTOR.fields}
_Response = message_class("inference.ModelInferResponse")

#: The last field of a response.
_RAW_OUTPUT = _Response.DESCRIPTOR.fields_by_name["raw_output_contents"].number


class InferForm(MessageForm):
    """The common part of all messages of one form.

    Attributes:
        model, version: as the message names them.
        signature: of the version that the message was read for; by another signature it may mean other inputs.
        call: what the message asks for, without inputs.
    """

    __slots__ = ("call", "model", "signature", "version")

    def __init__(
        self, content: bytes, message: Any, call: InferCall, signature: ModelSignature, inputs: Sequence[FormInput]
    ) -> None:
        super().__init__(content, inputs)
        self.model, self.version = message.model_name, message.model_version
        self.signature = signature
        self.call = replace(call, request=InferenceRequest({}, call.request.signature, call.request.outputs))

    def suits(self, model: ServedModel) -> bool:
        return model.signatures.get(self.signature.name) is self.signature


class InferForms(MessageForms[InferForm]):
    """The forms that were seen."""

    def learn(self, content: bytes, message: Any, call: InferCall, signature: ModelSignature) -> None:
        """Remembers the form of a message that was read as this call, if it is plain."""
        inputs = call.request.inputs
        if message.id or message.parameters or not inputs or len(message.raw_input_contents) != len(inputs):
            return
        if any(each.parameters for each in (*message.inputs, *message.outputs)):
            return
        if not is_short_beside(content, sum([each.nbytes for each in inputs.values()])):
            return
        found = _tensors(content, inputs)
        if found is not None:
            self.keep(content, InferForm(content, message, call, signature, found))


def _tensors(content: bytes, inputs: Mapping[str, Array]) -> list[FormInput] | None:
    """The places of the tensors, which are in the order of the inputs; None if the message is not plain."""
    found = []
    left = iter(inputs.items())
    try:
        for number, start, end in fields_of(content, 0, len(content)):
            if number not in _FIELDS.values():
                return None
            if number != _FIELDS["raw_input_contents"]:
                continue
            name, array = next(left)  # there is one: `learn` compared the numbers
            if array.dtype.kind in "OSb" or content[start:end] != array.tobytes():
                return None
            found.append(FormInput(name, array.dtype, array.shape, start, end))
    except NotPlain:
        return None
    return found


class InferTaskless:
    """Answers ModelInfer without tasks (a `Taskless`), and each message of ModelStreamInfer."""

    def __init__(self, served: OpenInference) -> None:
        self._served = served
        self._forms = InferForms()
        self.form = self._forms.find

    def begin(self, content: bytes, call: GrpcCall) -> CallComputation:
        form = self._forms.find(content)
        if form is not None:
            model = self._resolve(form.model, form.version, call)
            if form.suits(model):
                asked = form.call.request
                request = InferenceRequest(form.read(content), asked.signature, asked.outputs, call.deadline_s)
                return _computation(model, replace(form.call, request=request), call, _no_region)
        return self._begin_new(content, call)

    def _begin_new(self, content: bytes, call: GrpcCall) -> CallComputation:
        if takes_long(content, _Request.DESCRIPTOR):
            raise TakesLong
        return self.read(parse_message(_Request, content), call, content)

    def read(self, message: Any, call: GrpcCall, content: bytes = b"") -> CallComputation:
        """The computation of a parsed message, as by `begin`. `content`: its bytes; if given, its form is learnt."""
        # Nothing is awaited until the batcher has the request: the version cannot change in between.
        model = self._resolve(message.model_name, message.model_version, call)
        read_region, write_region = self._served.region_access(call.client[0], call.permit)
        asked = read_message(message, model.signatures, read_region, partial(deadline, call), MOST_VALUES)
        if content:
            self._forms.learn(content, message, asked, model.signatures[asked.request.signature])
        return _computation(model, asked, call, write_region)

    def read_in_process(self, content: bytes, call: GrpcCall, process: Reader) -> Answer:
        """The answer to a message that another process parses, since parsing takes long: see InProcess."""
        message = InferRequestInProcess(process, content)
        name, version, call.request_id = message.head()
        model = self._resolve(name, version, call)
        asked = message.call(model.signatures, partial(deadline, call))
        if asked is None:
            self._served.check_regions()
            raise InvalidRequest(
                "Inputs in shared memory come in a message of at most 500 fields and 2,000 strings in each raw content"
            )
        _, write_region = self._served.region_access(call.client[0], call.permit)
        return partial(_computation(model, asked, call, write_region).answer, call)

    def _resolve(self, name: str, version: str, call: GrpcCall) -> ServedModel:
        call.check_model(name)
        model = self._served.resolve(name, version)
        call.model, call.version = model.name, model.version
        return model

    def model(self, form: InferForm) -> str:
        name: str = form.model
        return name

    def begin_coalesced(
        self, form: InferForm, contents: Sequence[bytes], deadline_s: float, caller: str
    ) -> CallsAsOne | None:
        """One request for messages of a form that give all inputs, and want all outputs, of a quick, batchable model.

        None if the messages or the model are not such.
        """
        try:
            model = self._served.resolve(form.model, form.version)
        except ServingError:
            return None
        if form.call.request.outputs or not form.suits(model):
            return None
        write = partial(_write_together, form.call, model, form.rows)
        return calls_as_one(form, contents, model, form.signature, write, deadline_s=deadline_s, caller=caller)


def deadline(call: GrpcCall, timeout_s: float) -> float:
    """The earlier of the call's deadline and the request's own, in monotonic seconds. `timeout_s`: 0 for none."""
    latest_s = call.deadline_s
    return min(latest_s, call.started_s + timeout_s) if timeout_s else latest_s


def _computation(model: ServedModel, asked: InferCall, call: GrpcCall, write_region: Any) -> CallComputation:
    """The computation of a call; the call's caller, priority and signature are noted where they belong."""
    asked.request.priority = asked.request.priority or call.priority
    asked.request.caller = call.caller
    call.signature = asked.request.signature

    def write(response: InferenceResponse) -> bytes:
        content: bytes = write_message(asked, response, write_region).SerializeToString()
        return content

    return CallComputation(model, asked.request, write)


def _no_region(*_: object) -> NoReturn:
    raise AssertionError("no output of a plain message names a region")


def _write_together(call: InferCall, model: ServedModel, rows: int, outputs: Outputs) -> Sequence[bytes]:
    """The replies to calls of `rows` rows each. Without strings they differ in the numbers of their outputs only."""
    wanted = [(each.name, outputs[each.name]) for each in call.wanted]
    count = len(wanted[0][1]) // rows
    if any(array.dtype.hasobject for _, array in wanted):
        return [_write_alone(call, model, outputs, first, rows) for first in range(0, count * rows, rows)]
    kinds = tuple([(name, array.dtype, array.shape[1:]) for name, array in wanted])
    starts = _starts(model.name, model.version, rows, kinds)
    return messages_of(count, starts, [encode(array) for _, array in wanted])


def _write_alone(call: InferCall, model: ServedModel, outputs: Outputs, first: int, rows: int) -> bytes:
    mine = {name: array[first : first + rows] for name, array in outputs.items()}
    response = InferenceResponse(mine, model.name, model.version, call.request.signature)
    content: bytes = write_message(call, response, _no_region).SerializeToString()
    return content


@lru_cache(maxsize=1024)
def _starts(model: str, version: int, rows: int, kinds: tuple[Any, ...]) -> list[bytes]:
    """The bytes before the numbers of each output: the field's head; before the first one, all other fields, too."""
    message = _Response(model_name=model, model_version=str(version))
    sizes = []
    for name, dtype, shape in kinds:
        array: Array = np.zeros((rows, *shape), dtype)
        message.outputs.add(name=name, datatype=datatype_of(dtype), shape=array.shape)
        sizes.append(array.nbytes)
    heads = [field_start(_RAW_OUTPUT, size) for size in sizes]
    return [message.SerializeToString() + heads[0], *heads[1:]]
