"""The parts of strings that nodes decode: the features of an example, the columns of a line, numbers, images.

Each kind maps outputs of its node to the parts whose values they hold, in the order of TensorFlow's op definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import STRING, Array
from app.runtimes.tensorflow.accepted_values.value_facts import Decoder, Facts, Part
from app.runtimes.tensorflow.graph_nodes import names

#: The constant that a node reads at a place; None if it reads none there.
Constant = Callable[[int], Array | None]

#: The most features, columns and pieces that are read. Chosen.
_MOST_PARTS = 512

Decoded = tuple[Decoder, Mapping[int, Facts]]

IMAGES = names("DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng")


def decoder_of(node: Any, constant: Constant) -> Decoded | None:
    """The decoder of a node's first operand, and the facts of its outputs; None if its operands do not tell."""
    return DECODERS[node.op](node, constant)


# --- examples ---


def _example_v1(node: Any, constant: Constant) -> Decoded | None:
    sparse, dense = node.attr["Nsparse"].i, node.attr["Ndense"].i
    if sparse + dense > _MOST_PARTS:
        return None
    keys = [constant(2 + place) for place in range(sparse + dense)]
    if any(key is None for key in keys):
        return None
    defaults = [constant(2 + sparse + dense + place) for place in range(dense)]
    return _example(node, [_bytes(key) for key in keys[:sparse]], [_bytes(key) for key in keys[sparse:]], defaults)


def _example_v2(node: Any, constant: Constant) -> Decoded | None:
    sparse, dense, ragged = constant(2), constant(3), constant(4)
    if sparse is None or dense is None or ragged is None:
        return None
    defaults = [constant(5 + place) for place in range(dense.size)]
    return _example(node, list(sparse.ravel()), list(dense.ravel()), defaults, list(ragged.ravel()))


def _single_example(node: Any, constant: Constant) -> Decoded | None:
    sparse, dense = node.attr["sparse_keys"].list.s, node.attr["dense_keys"].list.s
    return _example(node, list(sparse), list(dense), [constant(1 + place) for place in range(len(dense))])


def _example(
    node: Any,
    sparse: Sequence[bytes],
    dense: Sequence[bytes],
    defaults: Sequence[Array | None],
    ragged: Sequence[bytes] = (),
) -> Decoded | None:
    attributes = node.attr
    if len(sparse) + len(dense) + len(ragged) > _MOST_PARTS:
        return None
    sparse_types, ragged_types = attributes["sparse_types"].list.type, attributes["ragged_value_types"].list.type
    parts = [Part(key, _facts(kind), "sparse", required=False) for key, kind in zip(sparse, sparse_types, strict=True)]
    parts += [
        Part(key, _facts(kind), "dense", _shape(shape), required=default is not None and not default.size)
        for key, kind, shape, default in zip(
            dense, attributes["Tdense"].list.type, attributes["dense_shapes"].list.shape, defaults, strict=True
        )
    ]
    parts += [Part(key, _facts(kind), "ragged", required=False) for key, kind in zip(ragged, ragged_types, strict=True)]
    # Outputs: indices, values and shapes of sparse features; dense values; values of ragged features.
    numbers = [len(sparse) + place for place in range(len(sparse))]
    numbers += [3 * len(sparse) + place for place in range(len(dense) + len(ragged))]
    return Decoder("example", parts), {number: part.facts for number, part in zip(numbers, parts, strict=True)}


def _sequence_v2(node: Any, constant: Constant) -> Decoded | None:
    keys = [constant(place) for place in range(2, 8)]
    if any(each is None for each in keys):
        return None
    found = [list(each.ravel()) for each in keys if each is not None]
    attributes = node.attr
    types = [
        attributes[name].list.type
        for name in ("context_sparse_types", "Tcontext_dense", "context_ragged_value_types",
                     "feature_list_sparse_types", "feature_list_dense_types", "feature_list_ragged_value_types")
    ]  # fmt: skip
    shapes = [attributes[name].list.shape for name in ("context_dense_shapes", "feature_list_dense_shapes")]
    return _sequence(found, types, shapes, [1, 3, 4, 7, 9, 11])


def _single_sequence(node: Any, constant: Constant) -> Decoded | None:
    attributes = node.attr
    counts = [attributes[name].i for name in ("Ncontext_sparse", "Ncontext_dense", "Nfeature_list_sparse",
                                              "Nfeature_list_dense")]  # fmt: skip
    keys = [constant(2 + place) for place in range(min(sum(counts), _MOST_PARTS + 1))]
    if len(keys) > _MOST_PARTS or any(key is None for key in keys):
        return None
    texts = iter([_bytes(key) for key in keys])
    context_sparse, context_dense, list_sparse, list_dense = ([next(texts) for _ in range(count)] for count in counts)
    types = [
        attributes["context_sparse_types"].list.type, attributes["Tcontext_dense"].list.type, (),
        attributes["feature_list_sparse_types"].list.type, attributes["feature_list_dense_types"].list.type, (),
    ]  # fmt: skip
    shapes = [attributes[name].list.shape for name in ("context_dense_shapes", "feature_list_dense_shapes")]
    return _sequence([context_sparse, context_dense, [], list_sparse, list_dense, []], types, shapes, None)


def _sequence(
    keys: Sequence[Sequence[bytes]], types: Sequence[Sequence[int]], shapes: Sequence[Any], groups: Any
) -> Decoded | None:
    """The decoder of keys and types by context and by list, each sparse, dense and ragged.

    Outputs of ParseSequenceExampleV2 come in 14 groups, of which `groups` hold values; outputs of V1 are not followed.
    """
    if sum(map(len, keys)) > _MOST_PARTS:
        return None
    parts: list[Part] = []
    of_group: dict[int, list[Facts]] = {}
    for place, (names_, kinds) in enumerate(zip(keys, types, strict=True)):
        form = ("sparse", "dense", "ragged")[place % 3]
        inner = [_shape(each) for each in shapes[place // 3]] if form == "dense" else [()] * len(names_)
        made = [
            Part(key, _facts(kind), form, shape, required=form == "dense", steps=place >= 3)  # type: ignore[arg-type]  # a Literal
            for key, kind, shape in zip(names_, kinds, inner, strict=True)
        ]
        parts += made
        if groups is not None:
            of_group[groups[place]] = [part.facts for part in made]
    return Decoder("sequence", parts), dict(_numbered(keys, of_group)) if groups is not None else {}


def _numbered(keys: Sequence[Sequence[bytes]], of_group: Mapping[int, Sequence[Facts]]) -> Iterator[tuple[int, Facts]]:
    sizes = [len(each) for each in keys]
    context_sparse, context_dense, context_ragged, list_sparse, list_dense, list_ragged = sizes
    lengths = [
        *[context_sparse] * 3, context_dense, *[context_ragged] * 2,
        *[list_sparse] * 3, list_dense, list_dense, *[list_ragged] * 3,
    ]  # fmt: skip
    before = 0
    for group, length in enumerate(lengths):
        for place, facts in enumerate(of_group.get(group, ())):
            yield before + place, facts
        before += length


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
