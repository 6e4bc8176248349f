from __future__ import annotations

import numpy as np

from app.core.inference import InferenceRequest, InferenceResponse
from app.protocols.open_inference.grpc_messages import write_message
from app.protocols.open_inference.infer_call import InferCall, WantedOutput
from app.protocols.open_inference.shared_memory import RegionSlice

Y = np.array([[1, 2]], np.float32)
RESPONSE = InferenceResponse({"y": Y, "z": Y.T}, "m", 3, "s")


def test_outputs_are_raw():
    wire = write_message(
        InferCall(InferenceRequest({}), [WantedOutput("z"), WantedOutput("y", 1)], "7"), RESPONSE, None
    )
    assert (wire.model_name, wire.model_version, wire.id) == ("m", "3", "7")
    assert [(each.name, each.datatype, list(each.shape)) for each in wire.outputs] == [
        ("z", "FP32", [2, 1]),
        ("y", "BYTES", [1, 1]),
    ]
    assert list(wire.raw_output_contents) == [Y.tobytes(), b"\x0a\0\0\x002.000000:1"]
    assert not wire.parameters


def test_outputs_in_shared_memory_keep_their_place_in_the_raw_contents():
    written = {}
    wanted = [WantedOutput("y", region=RegionSlice("r", 100, 4)), WantedOutput("z")]
    wire = write_message(
        InferCall(InferenceRequest({}), wanted), RESPONSE, lambda part, raw: written.update({part: bytes(raw)})
    )
    assert written == {RegionSlice("r", 100, 4): Y.tobytes()}
    assert list(wire.raw_output_contents) == [b"", Y.tobytes()]
    parameters = wire.outputs[0].parameters
    assert parameters["shared_memory_region"].string_param == "r"
    assert parameters["shared_memory_offset"].int64_param == 4
    assert parameters["shared_memory_byte_size"].int64_param == 8


def test_the_final_answer_of_a_stream_says_so_when_asked():
    wire = write_message(InferCall(InferenceRequest({}), [], final_response=True), RESPONSE, None)
    assert wire.parameters["triton_final_response"].bool_param
