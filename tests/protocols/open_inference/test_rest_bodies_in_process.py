"""A long v2 request gets the same reply whichever process reads it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.protocols.open_inference import rest_bodies
from app.transports.http.http_api import LONG_BODY_BYTES
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from tests.support.open_inference_world import RestAnswer, World
from tests.support.protocol_fakes import echo_model
from tests.support.waiting import HANG_S

LARGEST = 4 * LONG_BODY_BYTES
PADDING = b" " * LONG_BODY_BYTES


def both(
    readers: ReadingProcesses, content: bytes, dtype: str = "float32", shared: Path | None = None, **headers: str
) -> RestAnswer:
    """The answer, which is the same from both."""
    here, there = (
        World(echo_model(dtype), shared=shared, max_body_bytes=LARGEST, timeout_ms=HANG_S * 1e3, readers=each).infer(
            content, headers
        )
        for each in (None, readers)
    )
    assert (here.status, here.headers, here.body) == (there.status, there.headers, there.body)
    return here


leaves = st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=5)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
tensors = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "z"]) | leaves,
        "datatype": st.sampled_from(["FP32", "BYTES", "FP64"]) | leaves,
        "shape": st.lists(st.integers(-1, 4), max_size=2) | leaves,
        "data": values,
        "parameters": st.dictionaries(
            st.sampled_from(["binary_data_size", "shared_memory_region"]), leaves, max_size=2
        ),
    },
)
good = st.lists(st.floats(width=32), min_size=1, max_size=5).map(
    lambda data: {"name": "x", "datatype": "FP32", "shape": [len(data)], "data": data}
)
outputs = st.lists(st.fixed_dictionaries({"name": st.sampled_from(["y", "z"])}), max_size=2)
documents = st.fixed_dictionaries(
    {"inputs": st.lists(good | tensors, max_size=2) | values},
    optional={
        "outputs": outputs | values,
        "id": st.text(max_size=3) | leaves,
        "parameters": st.dictionaries(st.sampled_from(["timeout", "priority", "signature_name"]), leaves, max_size=2),
    },
)


@given(document=documents, dtype=st.sampled_from(["float32", "string"]))
def test_a_document_is_answered_equally(readers: ReadingProcesses, document: Any, dtype: str) -> None:
    both(readers, json.dumps(document).encode() + PADDING, dtype)


@given(text=st.binary(max_size=40) | st.text('[]{}:,"\\ 01.eE-+naNIfx', max_size=40).map(str.encode))
def test_what_is_not_json_is_answered_equally(readers: ReadingProcesses, text: bytes) -> None:
    both(readers, PADDING + text)


@pytest.mark.parametrize("datum", [b"1.5", b"NaN", b"[]", b"[["])
def test_long_data_is_answered_equally(readers: ReadingProcesses, datum: bytes) -> None:
    count = LONG_BODY_BYTES // len(datum)
    data = b",".join([datum] * count)
    content = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d],"data":[%b]}]}' % (count, data)
    assert both(readers, content).status == (200 if datum in (b"1.5", b"NaN") else 400)


def test_binary_tensors_behind_a_long_text_are_answered_equally(readers: ReadingProcesses) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}
    text = json.dumps({"inputs": [tensor]}).encode() + PADDING
    length = {"inference-header-content-length": str(len(text))}
    answer = both(readers, text + np.arange(3, dtype=np.float32).tobytes(), **length)
    assert answer.json()["outputs"][0]["data"] == [0.0, 1.0, 2.0]
    assert both(readers, text + b"12", **length).status == 400


@pytest.mark.parametrize("on", [True, False])
def test_shared_memory_is_read_here(readers: ReadingProcesses, tmp_path: Path, on: bool) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [3]}
    parameters = {"shared_memory_region": "none", "shared_memory_byte_size": 12}
    text = json.dumps({"inputs": [{**tensor, "parameters": parameters}]}).encode() + PADDING
    answer = both(readers, text, shared=tmp_path if on else None)
    assert ("switched off" in answer.error) is not on


def test_the_time_out_in_the_body_counts(readers: ReadingProcesses) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    text = json.dumps({"inputs": [tensor], "parameters": {"timeout": 2_000_000}}).encode() + PADDING
    served = echo_model("float32")
    World(served, max_body_bytes=LARGEST, timeout_ms=HANG_S * 1e3, readers=readers).infer(text)
    assert served.requests[0].deadline_s < time.monotonic() + 2


def test_this_process_parses_no_long_request(readers: ReadingProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(*_: object, **__: object) -> NoReturn:
        raise InvalidRequest("parsed in this process")

    monkeypatch.setattr(rest_bodies, "parse", not_here)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    text = json.dumps({"inputs": [tensor]}).encode()
    world = World(echo_model("float32"), max_body_bytes=LARGEST, timeout_ms=HANG_S * 1e3, readers=readers)
    assert world.infer(text + PADDING).status == 200
    assert world.infer(text).error == "parsed in this process"
