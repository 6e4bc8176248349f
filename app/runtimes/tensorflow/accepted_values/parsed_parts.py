"""The parts of strings that nodes decode: the features of an example, the columns of a line, numbers, images.

Each kind maps outputs of its node to the parts whose values they hold, in the order of TensorFlow's op definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import STRING, Array
from app.runtimes.tensorflow.accepted_values.value_facts import Decoder, Facts, Part
from app.runtimes.tensorflow.graph_nodes import names
from app.runtimes.tensorflow.operation_results import first_result

#: The constant that a node reads at a place; None if it reads none there.
Constant = Callable[[int], Array | None]

#: The most features, columns and pieces that are read. Chosen.
_MOST_PARTS = 512

Decoded = tuple[Decoder, Mapping[int, Facts]]

IMAGES = names("DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng")


# --- examples ---

#: By the beginning of the names of its outputs, the attribute with the types of a group of features.
_TYPES = {
    "sparse": "sparse_types",
    "dense": "Tdense",
    "ragged": "ragged_value_types",
    "context_sparse": "context_sparse_types",
    "context_dense": "Tcontext_dense",
    "context_ragged": "context_ragged_value_types",
    "feature_list_sparse": "feature_list_sparse_types",
    "feature_list_dense": "feature_list_dense_types",
    "feature_list_ragged": "feature_list_ragged_value_types",
}


def _example_v1(node: Any, constant: Constant) -> Decoded | None:
    counts = {"sparse": node.attr["Nsparse"].i, "dense": node.attr["Ndense"].i}
    keys = _single_keys(counts, constant)
    return None if keys is None else _example(node, keys, constant, 2 + sum(counts.values()))


def _example_v2(node: Any, constant: Constant) -> Decoded | None:
    keys = [constant(place) for place in (2, 3, 4)]
    groups = {group: list(each.ravel()) for group, each in zip(_TYPES, keys, strict=False) if each is not None}
    return _example(node, groups, constant, 5) if len(groups) == len(keys) else None


def _single_example(node: Any, constant: Constant) -> Decoded | None:
    keys = {group: list(node.attr[f"{group}_keys"].list.s) for group in ("sparse", "dense")}
    return _example(node, keys, constant, 1)


def _example(node: Any, keys: Mapping[str, Sequence[bytes]], constant: Constant, first_default: int) -> Decoded | None:
    """The decoder of these keys; a dense feature whose default value is empty is required."""
    defaults = [constant(first_default + place) for place in range(min(len(keys["dense"]), _MOST_PARTS))]
    return _features(node, "example", keys, [default is not None and not default.size for default in defaults])


def _sequence_v2(node: Any, constant: Constant) -> Decoded | None:
    keys = [constant(place) for place in range(2, 8)]
    groups = [group for group in _TYPES if group.startswith(("context", "feature_list"))]
    found = {group: list(each.ravel()) for group, each in zip(groups, keys, strict=True) if each is not None}
    return _features(node, "sequence", found) if len(found) == len(keys) else None


def _single_sequence(node: Any, constant: Constant) -> Decoded | None:
    groups = ("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense")
    keys = _single_keys({group: node.attr[f"N{group}"].i for group in groups}, constant)
    return None if keys is None else _features(node, "sequence", keys)


def _single_keys(counts: Mapping[str, int], constant: Constant) -> dict[str, list[bytes]] | None:
    """The keys of groups of so many features, each of which is an operand; None if one is not known."""
    total = sum(counts.values())
    keys = [constant(2 + place) for place in range(total)] if total <= _MOST_PARTS else [None]
    if any(key is None for key in keys):
        return None
    texts = iter([_bytes(key) for key in keys])
    return {group: list(islice(texts, count)) for group, count in counts.items()}


def _features(
    node: Any, kind: str, keys: Mapping[str, Sequence[bytes]], required: Sequence[bool] | None = None
) -> Decoded | None:
    """The decoder of features by group. required: of dense features; None for all."""
    if sum(map(len, keys.values())) > _MOST_PARTS:
        return None
    parts: list[Part] = []
    outputs: dict[int, Facts] = {}
    for group, names_ in keys.items():
        form: Any = group.rpartition("_")[2]
        dense = form == "dense"
        shapes = map(_shape, node.attr[f"{group}_shapes"].list.shape) if dense else [()] * len(names_)
        needed = required if dense and required is not None else [dense] * len(names_)
        made = [
            Part(key, _facts(dtype), form, shape, required=each, steps=group.startswith("feature_list"))
            for key, dtype, shape, each in zip(names_, node.attr[_TYPES[group]].list.type, shapes, needed, strict=True)
        ]
        parts += made
        first = first_result(node, f"{group}_values")
        outputs |= {} if first is None else {first + place: part.facts for place, part in enumerate(made)}
    return Decoder(kind, parts), outputs


# --- other texts ---


def _csv(node: Any, _: Constant) -> Decoded | None:
    kinds = node.attr["OUT_TYPE"].list.type
    if len(kinds) > _MOST_PARTS:
        return None
    delimiter = node.attr["field_delim"].s or b","
    parts = [Part(b"", _facts(kind)) for kind in kinds]
    return Decoder("csv", parts, {"delimiter": delimiter}), {place: each.facts for place, each in enumerate(parts)}


def _split(_: Any, constant: Constant) -> Decoded | None:
    """All pieces are one part: a node that reads a single piece is not followed."""
    separator = constant(1)
    part = Part(b"", Facts(STRING))
    text = b" " if separator is None or not separator.size else _bytes(separator)
    return Decoder("split", [part], {"separator": text or b" "}), {1: part.facts}


def _substr(_: Any, constant: Constant) -> Decoded | None:
    begin, length = constant(1), constant(2)
    if begin is None or length is None or begin.size != 1 or length.size != 1:
        return None
    part = Part(b"", Facts(STRING))
    options = {"begin": int(begin.ravel()[0]), "length": int(length.ravel()[0])}
    return Decoder("substr", [part], options), {0: part.facts}


def _one(kind: str, dtype: Callable[[Any], np.dtype[Any]], **options: str) -> Callable[[Any, Constant], Decoded | None]:
    """A decoder with one part, the first output. options: names of attributes, by the names of options."""

    def found(node: Any, _: Constant) -> Decoded | None:
        part = Part(b"", Facts(dtype(node)))
        values = {name: _attribute(node, attribute) for name, attribute in options.items()}
        return Decoder(kind, [part], {**values, "operation": node.op}), {0: part.facts}

    return found


def _attribute(node: Any, name: str) -> Any:
    value = node.attr[name]
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)


def _out_type(node: Any) -> np.dtype[Any]:
    return _dtype(node.attr["out_type"].type)


#: By operation: the decoder of a node's first operand, and the facts of its outputs; None if its operands do not tell.
DECODERS: Mapping[str, Callable[[Any, Constant], Decoded | None]] = {
    "ParseExample": _example_v1,
    "ParseExampleV2": _example_v2,
    "ParseSingleExample": _single_example,
    "ParseSequenceExampleV2": _sequence_v2,
    "ParseSingleSequenceExample": _single_sequence,
    "DecodeCSV": _csv,
    "StringSplit": _split,
    "StringSplitV2": _split,
    "Substr": _substr,
    "StringToNumber": _one("number", _out_type),
    "DecodeBase64": _one("base64", lambda _: STRING),
    "DecodeRaw": _one("raw", _out_type, little_endian="little_endian"),
    "DecodePaddedRaw": _one("raw", _out_type, little_endian="little_endian"),
    "DecodeCompressed": _one("compressed", lambda _: STRING, compression="compression_type"),
    "ParseTensor": _one("tensor", _out_type),
    "DecodeWav": _one(
        "wav", lambda _: np.dtype(np.float32), channels="desired_channels", samples="desired_samples"
    ),
    "DecodeJSONExample": _one("json", lambda _: STRING),
    **{
        operation: _one("image", lambda _: np.dtype(np.uint8), channels="channels")
        for operation in IMAGES
    },
}  # fmt: skip


def _facts(kind: int) -> Facts:
    return Facts(_dtype(kind))


def _dtype(kind: int) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(tf.as_dtype(kind).as_numpy_dtype)
    return dtype


def _shape(shape: Any) -> tuple[int, ...]:
    return () if shape.unknown_rank else tuple(each.size for each in shape.dim)


def _bytes(constant: Array | None) -> bytes:
    value = b"" if constant is None or not constant.size else constant.ravel()[0]
    return value if isinstance(value, bytes) else str(value).encode()
