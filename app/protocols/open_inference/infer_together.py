"""Infer requests in JSON that arrive together, read into one array for each input, and their replies.

Only plain ones: `inputs` with their data in the JSON, and an `id` if they like. Others are read one by one
(rest_bodies.py), which gives equal answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import orjson

from app.codecs.json.long_arrays import SHORTEST_BYTES
from app.codecs.json.nested_lists import tensor
from app.codecs.json.writing import dumps, jsonable
from app.core.errors import ServingError
from app.core.inference import Array, ModelSignature, TensorSpec
from app.protocols.open_inference.datatypes import checked_shape, datatype_of

_TENSOR = {"name", "shape", "datatype", "data"}
_FIELDS = {"inputs", "id"}

#: What stands between two rows.
_BETWEEN = b"],["


class ReadTogether(NamedTuple):
    """inputs: of shape [sum of rows, ...]; rows, ids: of each request, the id empty if it has none."""

    inputs: dict[str, Array]
    rows: Sequence[int]
    ids: Sequence[str]


class _Unusual(Exception):
    """Whatever has to be read alone."""


def read_together(bodies: Sequence[bytes], signature: ModelSignature) -> ReadTogether | None:
    """The rows of all bodies one after another; None unless all are short and plain, and of equal inner shapes."""
    try:
        _expect(max(map(len, bodies)) < SHORTEST_BYTES)
        documents = [orjson.loads(body) for body in bodies]
        ids = [document.get("id", "") for document in documents]
        tensors = [{each["name"]: each for each in document["inputs"]} for document in documents]
        for document, own, identity in zip(documents, tensors, ids, strict=True):
            _expect(document.keys() <= _FIELDS and type(identity) is str and identity.isascii())
            _expect(own.keys() == signature.inputs.keys() and len(document["inputs"]) == len(own))
        read = {name: _read_input([own[name] for own in tensors], spec) for name, spec in signature.inputs.items()}
        rows, *others = [counts for _, counts in read.values()]
        _expect(all(counts == rows for counts in others))
    except (_Unusual, orjson.JSONDecodeError, TypeError, KeyError, AttributeError, ValueError, ServingError):
        return None
    return ReadTogether({name: array for name, (array, _) in read.items()}, rows, ids)


def _read_input(tensors: Sequence[dict[str, Any]], spec: TensorSpec) -> tuple[Array, list[int]]:
    """One input of all requests, and the rows of each. Raises _Unusual, and what JSON of other types leads to."""
    first = checked_shape(spec, tensors[0]["shape"])
    datatype, inner, elements = datatype_of(spec.dtype), list(first[1:]), prod(first[1:])
    rows, values = list[int](), list[Any]()
    for each in tensors:
        shape, data = each["shape"], each["data"]
        _expect(each.keys() == _TENSOR and each["datatype"] == datatype)
        _expect(type(shape) is list and set(map(type, shape)) == {int} and shape[1:] == inner)
        _expect(type(data) is list and 0 < shape[0] * elements == len(data))
        rows.append(shape[0])
        values += data
    array = tensor(values, spec.dtype)
    _expect(array.ndim == 1)
    return array.reshape(-1, *inner), rows


def _expect(usual: bool) -> None:
    if not usual:
        raise _Unusual


def write_each(
    model: str, version: int, outputs: Mapping[str, Array], rows: Sequence[int], ids: Sequence[str]
) -> list[bytes] | None:
    """What rest_bodies.infer_reply writes for each of several plain requests, of their own rows in `outputs`.

    An output is written at once and cut where rows end. None if that cannot be: for strings, scalars and empty rows.
    """
    written = list[list[bytes]]()
    for name, array in outputs.items():
        if not (array.ndim and array.size) or array.dtype.hasobject:
            return None
        texts = dumps(jsonable("", array.reshape(len(array), -1)))[2:-2].split(_BETWEEN)
        if len(texts) != sum(rows) or not min(rows):
            return None
        if len(texts) != len(rows):  # some have several
            ends = accumulate(rows)
            texts = [b",".join(texts[end - count : end]) for end, count in zip(ends, rows, strict=True)]
        begin = dumps({"name": name, "datatype": datatype_of(array.dtype)})[:-1] + b',"shape":['
        inner = b"".join([b",%d" % size for size in array.shape[1:]]) + b'],"data":['
        written.append([b"%b%d%b%b]}" % (begin, count, inner, text) for count, text in zip(rows, texts, strict=True)])
    before = dumps({"model_name": model, "model_version": str(version)})[:-1] + b',"outputs":['
    after = [b'],"id":%b}' % dumps(each) if each else b"]}" for each in ids]
    return [before + b",".join(own) + end for own, end in zip(zip(*written, strict=True), after, strict=True)]
