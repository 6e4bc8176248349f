"""Classify, Regress and MultiInference, live."""

from __future__ import annotations

from typing import Any

import pytest
from grpc import StatusCode

from app.codecs.protobuf.messages import message_class
from tests.support.grpc_live import ClassicModel, Live, spec, with_live

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"


def example(**values: float) -> Any:
    message = message_class("tensorflow.Example")()
    for name, value in values.items():
        message.features.feature[name].float_list.value.append(value)
    return message


def input_of(*examples: Any, context: Any = None) -> Any:
    message = message_class("tensorflow.serving.Input")()
    if context is None:
        message.example_list.examples.extend(examples)
    else:
        message.example_list_with_context.examples.extend(examples)
        message.example_list_with_context.context.CopyFrom(context)
    return message


TWO = input_of(example(x=1), example(x=1, y=2))
LENGTHS = [example(x=1).ByteSize(), example(x=1, y=2).ByteSize()]


def request(kind: str, signature: str = "", examples: Any = TWO, name: str = "m") -> Any:
    return message_class(f"tensorflow.serving.{kind}Request")(model_spec=spec(name, signature), input=examples)


def multi(*tasks: tuple[str, str], examples: Any = TWO, **more: Any) -> Any:
    message = message_class("tensorflow.serving.MultiInferenceRequest")(input=examples)
    for signature, method in tasks:
        message.tasks.add(model_spec=spec(signature=signature), method_name=method)
    return message


def with_classic(scenario: Any) -> ClassicModel:
    loaded = ClassicModel()
    with_live(scenario, ("m", 7, loaded))
    return loaded


def test_classes_have_labels_and_scores() -> None:
    async def scenario(running: Live) -> None:
        reply = await running.call("Classify", request("Classification"))
        rows = [[(each.label, each.score) for each in row.classes] for row in reply.result.classifications]
        assert rows == [[("a", length), ("�", 2 * length)] for length in LENGTHS]
        assert (reply.model_spec.name, reply.model_spec.version.value) == ("m", 7)
        assert reply.model_spec.signature_name == "serving_default"

    with_classic(scenario)


def test_classes_without_labels_have_scores_alone() -> None:
    async def scenario(running: Live) -> None:
        reply = await running.call("Classify", request("Classification", "scores"))
        assert [(c.label, c.score) for c in reply.result.classifications[0].classes] == [
            ("", LENGTHS[0]),
            ("", 2 * LENGTHS[0]),
        ]

    with_classic(scenario)


def test_a_regression_is_a_number_an_example() -> None:
    async def scenario(running: Live) -> None:
        reply = await running.call("Regress", request("Regression", "regress"))
        assert [each.value for each in reply.result.regressions] == LENGTHS
        assert reply.model_spec.signature_name == "regress"
        assert [(event.code, event.signature) for event in running.finished] == [("OK", "regress")]

    with_classic(scenario)


def test_the_context_adds_features_that_an_example_lacks() -> None:
    async def scenario(running: Live) -> None:
        examples = input_of(example(x=1), example(y=5), context=example(y=2, z=3))
        await running.call("Regress", request("Regression", "regress", examples))

    loaded = with_classic(scenario)
    seen = [message_class("tensorflow.Example").FromString(each) for each in loaded.seen]
    assert seen == [example(x=1, y=2, z=3), example(y=5, z=3)]


def test_several_tasks_share_their_examples() -> None:
    async def scenario(running: Live) -> None:
        reply = await running.call("MultiInference", multi(("regress", REGRESS), ("", CLASSIFY)))
        regression, classification = reply.results
        assert [each.value for each in regression.regression_result.regressions] == LENGTHS
        assert len(classification.classification_result.classifications) == 2
        assert [each.model_spec.signature_name for each in reply.results] == ["regress", "serving_default"]
        assert {each.model_spec.version.value for each in reply.results} == {7}
        assert [event.code for event in running.finished] == ["OK"]

    with_classic(scenario)


def several_models() -> Any:
    message = multi(("", CLASSIFY))
    message.tasks.add(model_spec=spec("n"), method_name=CLASSIFY)
    return message


@pytest.mark.parametrize(
    ("method", "message", "code", "text"),
    [
        ("Classify", request("Classification", name="n"), StatusCode.NOT_FOUND, "Servable not found"),
        (
            "Classify",
            request("Classification", "q"),
            StatusCode.INVALID_ARGUMENT,
            "No signature was found with the name: q",
        ),
        ("Regress", request("Regression", "q"), StatusCode.INVALID_ARGUMENT, "No signature was found with the name: q"),
        ("Classify", request("Classification", examples=None), StatusCode.INVALID_ARGUMENT, "Input is empty."),
        ("Classify", request("Classification", examples=input_of()), StatusCode.INVALID_ARGUMENT, "Input is empty."),
        (
            "Classify",
            request("Classification", "regress"),
            StatusCode.INVALID_ARGUMENT,
            "Signature 'regress' cannot classify: expecting output 'classes' or 'scores', but it has 'outputs'",
        ),
        (
            "Regress",
            request("Regression", "numbers"),
            StatusCode.INVALID_ARGUMENT,
            "Signature 'numbers' cannot regress: expecting the one input 'inputs' of type string",
        ),
        ("Regress", request("Regression"), StatusCode.INVALID_ARGUMENT, "expecting output 'outputs', but it has"),
        ("Regress", request("Regression", "wide"), StatusCode.INVALID_ARGUMENT, "'outputs' has shape [2,2]"),
        ("Classify", request("Classification", "flat"), StatusCode.INVALID_ARGUMENT, "'scores' has shape [2]"),
        (
            "Classify",
            request("Classification", "uneven"),
            StatusCode.INVALID_ARGUMENT,
            "must have one column a class",
        ),
        ("MultiInference", multi(), StatusCode.INVALID_ARGUMENT, "MultiInferenceRequest has no tasks"),
        ("MultiInference", several_models(), StatusCode.INVALID_ARGUMENT, "must be for the same model and version"),
        (
            "MultiInference",
            multi(("", CLASSIFY), ("", "tensorflow/serving/predict")),
            StatusCode.UNIMPLEMENTED,
            "Unsupported signature method_name: 'tensorflow/serving/predict'",
        ),
        (
            "MultiInference",
            multi(("q", CLASSIFY)),
            StatusCode.INVALID_ARGUMENT,
            "Requested signature not found in model graph: q",
        ),
        ("MultiInference", multi(("", CLASSIFY), examples=None), StatusCode.INVALID_ARGUMENT, "Input is empty."),
        ("Regress", b"\xff", StatusCode.INVALID_ARGUMENT, "not a message that Regress takes"),
    ],
)
def test_what_is_wrong_is_said(method: str, message: Any, code: StatusCode, text: str) -> None:
    async def scenario(running: Live) -> None:
        got_code, got_text = await running.failure(method, message)
        assert (got_code, [event.code for event in running.finished]) == (code, [code.name])
        assert text in got_text

    with_classic(scenario)
