from __future__ import annotations

import pytest

from app.core.errors import InvalidRequest, SignatureNotFound, Unsupported
from app.core.inference import ModelSignature
from app.protocols.open_inference.infer_call import WantedOutput, choose_signature, make_call, wanted_output
from app.protocols.open_inference.parameters import RequestParameters
from app.protocols.open_inference.shared_memory import RegionSlice
from tests.support.protocol_fakes import signature_of, specs

SIGNATURE = signature_of(specs(x=("float32", (None,))), specs(y=("float32", (None,)), z=("float32", (None,))))


def signatures(*names):
    return {name: ModelSignature(name, SIGNATURE.inputs, SIGNATURE.outputs) for name in names}


@pytest.mark.parametrize(
    ("names", "asked", "chosen"),
    [
        (["a"], "", "a"),
        (["a", "serving_default"], "", "serving_default"),
        (["a", "serving_default"], "a", "a"),
    ],
)
def test_the_signature(names, asked, chosen):
    assert choose_signature(signatures(*names), asked).name == chosen


@pytest.mark.parametrize(("names", "asked"), [(["a"], "b"), (["a", "b"], ""), ([], "")])
def test_no_such_signature(names, asked):
    with pytest.raises(SignatureNotFound, match="parameter 'signature_name' chooses one of: "):
        choose_signature(signatures(*names), asked)


@pytest.mark.parametrize(
    ("parameters", "output"),
    [
        ({}, WantedOutput("y", 0, True)),
        ({"other": 1}, WantedOutput("y", 0, True)),
        ({"binary_data": False}, WantedOutput("y", 0, False)),
        ({"classification": 3}, WantedOutput("y", 3, True)),
        (
            {"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": 4},
            WantedOutput("y", 0, True, RegionSlice("r", 8, 4)),
        ),
    ],
)
def test_parameters_of_an_output_are_read(parameters, output):
    assert wanted_output("y", parameters, True) == output


@pytest.mark.parametrize(
    "parameters",
    [
        {"binary_data": 1},
        {"classification": -1},
        {"classification": "3"},
        {"shared_memory_region": "r"},
        {"classification": 1, "shared_memory_region": "r", "shared_memory_byte_size": 8},
    ],
)
def test_contradicting_parameters_of_an_output_are_rejected(parameters):
    with pytest.raises(InvalidRequest):
        wanted_output("y", parameters)


def call(*names, signature=SIGNATURE, **parameters):
    outputs = [WantedOutput(name) for name in names]
    return make_call({}, outputs, signature, RequestParameters(**parameters), deadline_s=5.0)


@pytest.mark.parametrize(
    ("wanted", "computed", "answered"),
    [((), (), ["y", "z"]), (("z",), ("z",), ["z"]), (("z", "y"), (), ["z", "y"])],
)
def test_all_outputs_are_computed_by_the_same_batches_as_none_named(wanted, computed, answered):
    made = call(*wanted)
    assert made.request.outputs == computed
    assert [output.name for output in made.wanted] == answered
    assert made.request.deadline_s == 5.0


def test_binary_holds_for_outputs_that_are_not_named():
    assert [output.binary for output in call(binary_outputs=True).wanted] == [True, True]


@pytest.mark.parametrize(("wanted", "text"), [(("q",), "no output 'q'"), (("y", "z", "y"), "'y' is requested more")])
def test_unknown_and_repeated_outputs_are_rejected(wanted, text):
    with pytest.raises(InvalidRequest, match=text):
        call(*wanted)


def test_an_output_without_a_datatype_is_rejected_before_it_is_computed():
    signature = signature_of(SIGNATURE.inputs, specs(y=("float32", None), c=("complex64", None)))
    assert call("y", signature=signature).request.outputs == ("y",)
    with pytest.raises(Unsupported, match="complex64"):
        call(signature=signature)


def test_the_priority_reaches_the_queue():
    call = make_call({}, [], SIGNATURE, RequestParameters(priority=2), deadline_s=1.0)
    assert call.request.priority == 2
