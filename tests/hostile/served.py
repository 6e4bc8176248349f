"""A running server's models: valid inputs made from its metadata, its answers, its memory."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from app.codecs.protobuf.messages import enum_numbers, message_class
from app.codecs.protobuf.tensor_protos import ENCODING_BY_NUMBER
from app.core.inference import STRING, Array
from tests.hostile.wire_requests import predict_message

_ROWS = 2
#: The size of Python's small objects, roughly.
_BLOCK_BYTES = 64
_PROTOBUF = "application/x-protobuf"


async def served_inputs(http: httpx.AsyncClient) -> dict[str, dict[str, Array]]:
    """Two good rows for the default signature of every model that is ready, by the model's name."""
    listed = (await http.get("/v1/models")).json()
    names = [model["name"] for model in listed["models"]]
    told = {name: await http.get(f"/v1/models/{name}/metadata") for name in names}
    return {name: _inputs(each.json()) for name, each in told.items() if each.status_code == 200}


def _inputs(metadata: Mapping[str, Any]) -> dict[str, Array]:
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    return {name: _array(spec) for name, spec in signature["inputs"].items()}


def _array(spec: Mapping[str, Any]) -> Array:
    dtype = ENCODING_BY_NUMBER[enum_numbers("tensorflow.DataType")[spec["dtype"]]].dtype
    sizes = [int(dim["size"]) for dim in spec["tensor_shape"].get("dim", [])]
    shape = [_ROWS if size < 0 else size for size in sizes]
    if dtype == STRING:
        return np.full(shape, b"good", STRING)
    return np.ones(shape).astype(dtype)


async def answers(http: httpx.AsyncClient, models: Mapping[str, Mapping[str, Array]]) -> dict[str, dict[str, bytes]]:
    """Every model's outputs for its good rows, as they lie on the wire; each must have some."""
    found = {}
    for name, inputs in models.items():
        body = predict_message(name, inputs).SerializeToString()
        response = await http.post(f"/v1/models/{name}:predict", content=body, headers={"Content-Type": _PROTOBUF})
        assert response.status_code == 200, response.text
        reply = message_class("tensorflow.serving.PredictResponse").FromString(response.content)
        found[name] = {output: proto.SerializeToString() for output, proto in reply.outputs.items()}
        assert found[name]
    return found


class _MallocInformation(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def used_mib() -> int:
    """Memory that this process uses: what was asked of malloc, and Python's own blocks.

    Resident memory also counts what was freed and kept, which depends on the order in which threads asked.
    """
    gc.collect()
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInformation
    found = mallinfo2()
    return (found.uordblks + found.hblkhd + sys.getallocatedblocks() * _BLOCK_BYTES) // 2**20


def resident_mib(process: int | str = "self") -> int:
    """Resident memory of the process in bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) // 1024
