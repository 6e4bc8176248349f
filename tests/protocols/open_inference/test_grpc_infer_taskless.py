"""Messages of a form that was seen are read as others, and answered together as alone."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from app.codecs.at_once import TakesLong
from app.codecs.protobuf.messages import message_class
from app.core.errors import ServingError
from app.core.inference import Array
from app.core.reply import Answer
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.datatypes import datatype_of
from app.protocols.open_inference.grpc_infer_taskless import InferForm, InferTaskless
from app.transports.grpc.calls import GrpcCall
from tests.support.open_inference_world import World, sum_model

Request = message_class("inference.ModelInferRequest")
Response = message_class("inference.ModelInferResponse")


def quick_model() -> Any:
    """What arrives coalesced is computed coalesced."""
    made: Any = sum_model()
    made.coalescable_rows = lambda _: 8
    return made


def taskless(*models: Any) -> InferTaskless:
    served: OpenInference = World(*models or (quick_model(),)).served
    return InferTaskless(served)


def content(inputs: dict[str, Array] | None = None, *, wanted: list[str] | None = None, **more: Any) -> bytes:
    inputs = inputs or {"a": rows(0), "b": rows(1)}
    request = Request(model_name="m", **more)
    for name, array in inputs.items():
        request.inputs.add(name=name, datatype=datatype_of(array.dtype), shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    for name in wanted or ():
        request.outputs.add(name=name)
    serialized: bytes = request.SerializeToString()
    return serialized


def rows(seed: int, count: int = 2) -> Array:
    return np.random.default_rng(seed).random((count, 2), np.float32)


def call() -> GrpcCall:
    made = GrpcCall(0.0, inf)
    made.priority, made.caller = 3, "c"
    return made


def answered(asked: Any) -> Any:
    """The reply of a call that is computed alone."""
    inputs = asked.request.inputs
    outputs = {"sum": inputs["a"] + inputs["b"], "product": inputs["a"] * inputs["b"]}
    wanted = {name: outputs[name] for name in asked.request.outputs or outputs}
    answer = Answer(wanted, None)  # type: ignore[arg-type] # nobody asks how long it took
    return Response.FromString(asked.write(asked.model.response(asked.request, answer)))


@pytest.mark.parametrize("wanted", [[], ["product"], ["product", "sum"]])
@pytest.mark.parametrize("version", ["", "1"])
def test_a_message_of_a_form_that_was_seen_is_read_as_the_first(wanted: list[str], version: str) -> None:
    method = taskless()
    first, second = call(), call()
    method.begin(content(wanted=wanted, model_version=version), first)
    other = content({"a": rows(5), "b": rows(6)}, wanted=wanted, model_version=version)
    form = method.form(other)
    assert isinstance(form, InferForm)
    known, new = method.begin(other, second), taskless().begin(other, call())
    assert (first.model, first.version, first.signature) == (second.model, second.version, second.signature)
    assert (known.request.caller, known.request.priority) == ("c", 3)
    assert answered(known) == answered(new)
    assert [each.name for each in answered(known).outputs] == (wanted or ["sum", "product"])


@pytest.mark.parametrize(
    "other",
    [
        content(id="1"),
        content(parameters={"timeout": {"int64_param": 10}}),
        content() + b"\xc0\x0c\x01",  # an unknown field
        content({"a": rows(0, 3), "b": rows(1, 3)}),
        content({"b": rows(0), "a": rows(1)}),
        content(model_version="1"),
    ],
)
def test_what_says_more_or_something_else_is_of_no_form_or_another(other: bytes) -> None:
    method = taskless()
    method.begin(content(), call())
    assert method.form(content({"a": rows(8), "b": rows(9)})) is not None
    assert method.form(other) is None


def test_a_message_with_an_id_or_parameters_has_no_form() -> None:
    method = taskless()
    for each in (content(id="1"), content(parameters={"timeout": {"int64_param": 10}})):
        method.begin(each, call())
        assert method.form(each) is None


def test_another_signature_is_asked_anew() -> None:
    """A model that was loaded again may read the same bytes otherwise."""
    model = quick_model()
    method = taskless(model)
    method.begin(content(), call())
    model.signatures = sum_model().signatures
    form = method.form(content())
    assert form is not None
    assert method.begin_coalesced(form, [content(), content()], inf, "") is None
    assert answered(method.begin(content(), call())) == answered(taskless().begin(content(), call()))
    assert method.begin_coalesced(method.form(content()), [content(), content()], inf, "") is not None


@pytest.mark.parametrize("wanted", [[], ["product", "sum"]])
def test_replies_of_calls_that_were_computed_together_are_those_of_each_alone(wanted: list[str]) -> None:
    method = taskless()
    contents = [content({"a": rows(seed), "b": rows(-seed - 1 + 100)}, wanted=wanted) for seed in range(3)]
    alone = [answered(method.begin(each, call())) for each in contents]
    coalesced = method.begin_coalesced(method.form(contents[0]), contents, 7.0, "c")
    assert coalesced is not None
    assert (coalesced.rows, coalesced.max_rows) == (2, 8)
    assert (coalesced.request.deadline_s, coalesced.request.caller) == (7.0, "c")
    inputs = coalesced.request.inputs
    outputs = {"sum": inputs["a"] + inputs["b"], "product": inputs["a"] * inputs["b"]}
    assert [Response.FromString(each) for each in coalesced.write(outputs)] == alone


def test_texts_of_calls_that_were_computed_together_are_those_of_each_alone() -> None:
    method = taskless()
    contents = [content({"a": rows(seed), "b": rows(seed)}) for seed in range(2)]
    method.begin(contents[0], call())
    coalesced = method.begin_coalesced(method.form(contents[0]), contents, inf, "")
    assert coalesced is not None
    texts = np.array([[b"a"], [b"bc"], [b""], [b"def"]], object)
    replies = [Response.FromString(each) for each in coalesced.write({"sum": texts, "product": np.arange(4.0)})]
    assert [each.raw_output_contents[0] for each in replies] == [b"\1\0\0\0a\2\0\0\0bc", b"\0\0\0\0\3\0\0\0def"]
    assert [np.frombuffer(each.raw_output_contents[1]).tolist() for each in replies] == [[0.0, 1.0], [2.0, 3.0]]


def test_calls_for_some_outputs_or_of_a_model_that_is_gone_begin_alone() -> None:
    model = quick_model()
    method = taskless(model)
    some, others = content(wanted=["sum"]), content()
    for each in (some, others):
        method.begin(each, call())
    assert method.begin_coalesced(method.form(some), [some, some], inf, "") is None
    gone = taskless()
    gone._forms = method._forms
    served: Any = gone._served
    served._repository.models.clear()
    assert gone.begin_coalesced(method.form(others), [others, others], inf, "") is None
    with pytest.raises(ServingError, match="unknown model"):
        gone.begin(others, call())


def test_a_message_with_many_fields_is_left_to_another_process() -> None:
    request = Request(model_name="m")
    for _ in range(5000):
        request.inputs.add(name="a")
    with pytest.raises(TakesLong):
        taskless().begin(request.SerializeToString(), call())
