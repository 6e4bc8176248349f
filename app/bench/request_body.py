"""The body of a request, made from the server's description of its model: numbers of the right types and shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import ml_dtypes
import numpy as np
import orjson

#: The size in place of free ones but the batch's. Chosen: short, as the model's limits are not known.
_FREE_SIZE = 8

_V1 = re.compile(r"(?P<model>.*/v1/models/[^/:]+(?:/versions/\d+)?):predict")
_V2 = re.compile(r"(?P<model>.*/v2/models/[^/:]+(?:/versions/\d+)?)/infer")

#: The protocols' types whose names are not numpy's.
_DTYPES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "HALF": "float16",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
}


class CannotMakeRequest(ValueError):
    """No request can be made from the URL or from the model's description; the text says why."""


@dataclass(frozen=True, slots=True)
class TargetUrl:
    """The parts of an `http` or `https` URL; `path` includes the query."""

    host: str
    port: int
    path: str
    https: bool = False

    @classmethod
    def parse(cls, url: str) -> TargetUrl:
        """The target that a URL names. Raises CannotMakeRequest."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise CannotMakeRequest(f"URL {url!r} is not valid: {error}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise CannotMakeRequest(f"URL must be http://HOST:PORT/PATH or https://..., not {url!r}")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.hostname, port, path, parts.scheme == "https")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.https else ''}://{host}:{self.port}{self.path}"


class RequestBody(NamedTuple):
    """A body and the headers that describe it."""

    headers: Mapping[str, str]
    content: bytes


class _Input(NamedTuple):
    """An input in the server's description: datatype in the protocol's words; a size of -1 is free; None: no rank."""

    name: str
    datatype: str
    sizes: list[int] | None


class InferencePath:
    """A model's path for predictions: v1 (`:predict`, JSON) or v2 (`/infer`, binary tensors).

    Raises CannotMakeRequest for any other path.
    """

    def __init__(self, path: str) -> None:
        found = _V1.fullmatch(path) or _V2.fullmatch(path)
        if found is None:
            raise CannotMakeRequest(
                f"{path} is neither /v1/models/MODEL:predict nor /v2/models/MODEL/infer: say what to send with --body"
            )
        self._is_v1 = found.re is _V1
        self.metadata_path: str = found["model"] + ("/metadata" if self._is_v1 else "")

    def make_body(self, metadata: bytes, rows: int) -> RequestBody:
        """A body of `rows` rows; tensors of v2 are binary.

        Args:
            metadata: the server's answer at `metadata_path`.

        Raises:
            CannotMakeRequest: the description cannot be read, or numbers cannot fill an input.
        """
        random = np.random.default_rng(0)
        read, write = (_read_v1, _write_v1) if self._is_v1 else (_read_v2, _write_v2)
        try:
            described = list(read(orjson.loads(metadata)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CannotMakeRequest(f"{self.metadata_path} does not describe a model's inputs: {error!r}") from None
        return write([(each, _fill(each, rows, random)) for each in described])


_Filled = list[tuple[_Input, np.ndarray[Any, Any]]]


def _read_v1(document: Any) -> Iterator[_Input]:
    inputs = document["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]
    for name, tensor in inputs.items():
        shape = tensor["tensor_shape"]
        sizes = None if shape.get("unknown_rank") else [int(axis["size"]) for axis in shape.get("dim", ())]
        yield _Input(name, tensor["dtype"].removeprefix("DT_"), sizes)


def _read_v2(document: Any) -> Iterator[_Input]:
    for tensor in document["inputs"]:
        yield _Input(tensor["name"], tensor["datatype"], [int(size) for size in tensor["shape"]])


def _write_v1(filled: _Filled) -> RequestBody:
    inputs = {each.name: values.tolist() for each, values in filled}
    body = orjson.dumps({"signature_name": "serving_default", "inputs": inputs})
    return RequestBody({"content-type": "application/json"}, body)


def _write_v2(filled: _Filled) -> RequestBody:
    tensors = [
        {
            "name": each.name,
            "datatype": each.datatype,
            "shape": list(values.shape),
            "parameters": {"binary_data_size": values.nbytes},
        }
        for each, values in filled
    ]
    head = orjson.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}})
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    return RequestBody(headers, b"".join([head, *(values.tobytes() for _, values in filled)]))


def _fill(tensor: _Input, rows: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """The values of an input: floats between 0 and 1; integers 0 or 1, which are valid words and classes mostly."""
    # 1. Only numbers of known rank can be made up.
    dtype = _dtype_of(tensor.datatype)
    if dtype is None or tensor.sizes is None:
        raise CannotMakeRequest(f"Input {tensor.name!r} cannot be made up: say what to send with --body")

    # 2. A free first size is the batch, other free sizes are short.
    shape = [_FREE_SIZE if size < 0 else size for size in tensor.sizes]
    if shape and tensor.sizes[0] < 0:
        shape[0] = rows

    # 3. The values.
    values = random.integers(0, 2, shape) if dtype.kind in "iub" else random.random(shape)
    return np.asarray(values, dtype)


def _dtype_of(datatype: str) -> np.dtype[Any] | None:
    """numpy's type; None for types that are not numbers (or bool) in these protocols."""
    name = _DTYPES.get(datatype, datatype.lower())
    is_number = re.fullmatch(r"bool|bfloat16|float(16|32|64)|u?int(8|16|32|64)", name)
    return np.dtype(getattr(ml_dtypes, name, name)) if is_number else None
