"""Values made by facts of a graph: encoded images, examples, lines, entries of tables, numbers in strings.

A pool holds values of one form, such as images of one size; the likeliest form comes first. The values of a pool
differ where the facts allow it, since rows that are equal prove nothing.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

from app.core.inference import STRING, Array
from app.core.values.value_hints import Elements, Pool, Range, ValueHint
from app.runtimes.tensorflow.accepted_values.encoded_media import encoded_image, encoded_wav
from app.runtimes.tensorflow.accepted_values.made_examples import example_of, sequence_of
from app.runtimes.tensorflow.accepted_values.matching_strings import matches_all, matching_strings
from app.runtimes.tensorflow.accepted_values.value_facts import Decoder, Facts, Part

#: The most strings made for a pool, and the most pools of one `Facts`. Chosen: the row probe compares three rows, and
#: the model may reject some.
_VALUES, _MOST_POOLS = 6, 8

#: The most keys of a table, or whole numbers of a range, that make a pool. Chosen.
MOST_KEYS = 16

#: Where the graph tells no size: sides of images, elements of raw bytes and pieces of lines, one after the other.
#: Chosen: models that resize take any side, and small ones are quick.
_SIDES, _COUNTS, _PIECES = (32, 224, 28, 64), (4, 1, 8, 16, 784, 3072), (3, 2, 1, 4, 8)

#: A date and time; numbers are written over its digits.
_DATE_TIME = b"2021-03-04T05:06:07"

#: The most elements of a raw string or tensor, samples of a sound, and bytes of a string with spans. Chosen.
_MOST_ELEMENTS = 1 << 20


class PoolMaker:
    """Makes the pools of each `Facts`, and keeps them."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self._pools: dict[Facts, Sequence[Pool]] = {}

    def hint(self, facts: Facts) -> ValueHint:
        """The hint for an input with these facts."""
        pools = self.pools(facts)
        return ValueHint(tuple(pools), _takes_zero(facts), dict(facts.sizes))

    def pools(self, facts: Facts) -> Sequence[Pool]:
        if facts not in self._pools:
            self._pools[facts] = ()  # for facts that are a part of themselves
            made = self._texts(facts) if facts.dtype == STRING else self._numbers(facts)
            self._pools[facts] = list(islice(made, _MOST_POOLS))
        return self._pools[facts]

    def values(self, facts: Facts, shape: tuple[int, ...], number: int = 0) -> Array:
        """Values of `shape` from pool `number` of the facts, or from the last one; small values if there is no pool."""
        pools = self.pools(facts)
        pool = pools[min(number, len(pools) - 1)] if pools else _small(facts.dtype)
        return pool.draw(shape, facts.dtype, self.random)

    # --- numbers ---

    def _numbers(self, facts: Facts) -> Iterator[Pool]:
        if facts.equal:
            yield Elements(tuple(dict.fromkeys(facts.equal)))
        elif (bounds := facts.range()) is not None:
            low, high = bounds
            if facts.unequal and high - low < MOST_KEYS and not np.issubdtype(facts.dtype, np.inexact):
                yield Elements(
                    tuple(float(each) for each in range(int(low), int(high) + 1) if each not in facts.unequal)
                )
            else:
                yield Range(low, high)
        if facts.keys:
            yield Elements(tuple(float(key) for key in facts.keys[:MOST_KEYS]))

    # --- strings ---

    def _texts(self, facts: Facts) -> Iterator[Pool]:
        if facts.equal:
            yield Elements(tuple(dict.fromkeys(_text(each) for each in facts.equal)))
            return
        for values in self._decoded(facts):
            fitting = tuple(dict.fromkeys(value for value in values if matches_all(value, facts.patterns)))
            if fitting:
                yield Elements(fitting)
        if keys := tuple(dict.fromkeys(_text(key) for key in facts.keys[:MOST_KEYS])):
            yield Elements(keys)
        if made := matching_strings(facts.patterns, _VALUES, self.random):
            yield Elements(tuple(made))

    def _decoded(self, facts: Facts) -> Iterator[Sequence[bytes]]:
        """The strings of each pool: for all decoders of one kind in `_MERGED`, else for the likeliest decoder alone."""
        for kind, merge in _MERGED.items():
            parts = [decoder for decoder in facts.decoders if decoder.kind == kind]
            if parts:
                yield from merge(self, parts)
                return
        decoders = sorted(facts.decoders, key=lambda each: list(_MADE).index(each.kind))
        if decoders:
            yield from _MADE[decoders[0].kind](self, decoders[0])

    def pool_numbers(self, parts: Sequence[Part]) -> range:
        """The numbers for which some part has a pool, and 0 in any case."""
        return range(max([1, *(len(self.pools(part.facts)) for part in parts)]))

    def inner_values(self, decoder: Decoder) -> Iterator[Array]:
        """The values of the one part of a decoder, from each of its pools."""
        for number in self.pool_numbers(decoder.parts):
            yield self.values(decoder.parts[0].facts, (_VALUES,), number)


Made = Iterator[Sequence[bytes]]


def _examples(maker: PoolMaker, decoders: Sequence[Decoder]) -> Made:
    """Examples with all features, and examples with the required features alone."""
    parts = [part for decoder in decoders for part in decoder.parts]
    required = [part for part in parts if part.required]
    make = sequence_of if decoders[0].kind == "sequence" else example_of
    for number in maker.pool_numbers(parts):
        for some in (parts, required) if required and len(required) < len(parts) else (parts,):
            yield [make(some, lambda facts, shape: maker.values(facts, shape, number), maker.random)  # noqa: B023 - it is called at once
                   for _ in range(_VALUES)]  # fmt: skip


def _spans(maker: PoolMaker, decoders: Sequence[Decoder]) -> Made:
    """Strings with a number at the place of each decoder, in a date, or a date and time; zeros fill the rest."""
    spans = [(each.options["begin"], each.options["length"], each.parts[0].facts) for each in decoders]
    spans = [span for span in spans if span[0] >= 0 and span[1] > 0]
    end = max((begin + length for begin, length, _ in spans), default=0)
    if not 0 < end <= _MOST_ELEMENTS:
        return
    base = _DATE_TIME if end > 10 else _DATE_TIME[:10]
    # Spans that end where numbers of a date end: probably the parts of one, so it comes first, uncut.
    if all(span[1] in {2, 4} for span in spans) and not any(base[begin + length : begin + length + 1].isdigit()
                                                             for begin, length, _ in spans):  # fmt: skip
        yield [_filled(maker, base.ljust(end, b"0"), spans) for _ in range(_VALUES)]
    yield [_filled(maker, base.ljust(end, b"0")[:end], spans) for _ in range(_VALUES)]


def _filled(maker: PoolMaker, base: bytes, spans: Sequence[tuple[int, int, Facts]]) -> bytes:
    """A copy of `base` with the digits of a number, or a key of a table, in each span (begin, length, facts)."""
    text = bytearray(base)
    for begin, length, facts in spans:
        # A number that the graph parses is in its range; else four digits are a year, others a month, day or hour.
        number = next((each.parts[0].facts for each in facts.decoders if each.kind == "number"), None)
        if number is not None and maker.pools(number):
            digits = b"%d" % int(maker.values(number, ()).item())
        else:
            digits = b"%d" % (maker.random.integers(1990, 2030) if length == 4 else maker.random.integers(1, 10))
        # A text that the graph does not parse has a value of its own facts, unless its length is a year's.
        if length != 4 and number is None and maker.pools(facts):
            digits = bytes(maker.values(facts, (1,))[0])
        text[begin : begin + length] = digits.rjust(length, b"0")[-length:]
    return bytes(text)


def _images(maker: PoolMaker, decoder: Decoder) -> Made:
    facts = decoder.parts[0].facts
    wanted = decoder.options.get("channels") or 0
    known = [shape[-3:] for shape in facts.shapes if len(shape) >= 3 and min(shape[-3:-1]) > 0]
    channels = next((shape[-1] for shape in facts.shapes if len(shape) >= 3 and shape[-1] in {1, 3, 4}), 0)
    # Sizes that the graph reshapes images to come first; if it names no number of channels, colours, then grey.
    for height, width, _ in [*known, *((side, side, 0) for side in _SIDES)]:
        for depth in [wanted or channels] if wanted or channels else [3, 1]:
            shape = height, width, depth
            yield [encoded_image(str(decoder.options["operation"]), shape, maker.random) for _ in range(_VALUES - 2)]


def _encoded_by(encode: Callable[[Any, Decoder], bytes]) -> Callable[[PoolMaker, Decoder], Made]:
    """The maker of strings whose parts are encoded one by one."""
    return lambda maker, decoder: (
        [encode(each, decoder) for each in inner.tolist()] for inner in maker.inner_values(decoder)
    )


_COMPRESSIONS: Mapping[bytes, Callable[[bytes], bytes]] = {b"GZIP": gzip.compress, b"ZLIB": zlib.compress}


def _example_as_json(serialized: bytes) -> bytes:
    try:
        return json_format.MessageToJson(tf.train.Example.FromString(serialized)).encode()
    except Exception:  # it is no example: protobuf raises its own error
        return b"{}"


def _raw(maker: PoolMaker, decoder: Decoder) -> Made:
    facts = decoder.parts[0].facts
    known = [prod(each for each in shape if each > 0) for shape in facts.shapes]
    for count in dict.fromkeys([*known, *_COUNTS]):
        if 0 < count <= _MOST_ELEMENTS:
            values = [maker.values(facts, (count,)) for _ in range(_VALUES)]
            little = decoder.options.get("little_endian") is not False
            dtype = facts.dtype.newbyteorder("<") if little else facts.dtype.newbyteorder(">")
            yield [each.astype(dtype).tobytes() for each in values]


def _tensors(maker: PoolMaker, decoder: Decoder) -> Made:
    facts = decoder.parts[0].facts
    known = [tuple(max(each, 1) for each in shape) for shape in facts.shapes]
    for shape in dict.fromkeys([*known, *(shape[1:] for shape in known if len(shape) > 1), (), (4,), (8,), (2, 2)]):
        if prod(shape) <= _MOST_ELEMENTS:
            with tf.device("CPU"):
                yield [bytes(tf.io.serialize_tensor(maker.values(facts, shape)).numpy()) for _ in range(_VALUES)]


def _sounds(maker: PoolMaker, decoder: Decoder) -> Made:
    wanted, channels = decoder.options.get("samples") or -1, decoder.options.get("channels") or -1
    known = [shape[-2] for shape in decoder.parts[0].facts.shapes if len(shape) > 1 and shape[-2] > 0]
    for samples in [wanted] if wanted > 0 else [*known, 16_000, 1600]:
        yield [encoded_wav(min(samples, _MOST_ELEMENTS), max(channels, 1), maker.random) for _ in range(_VALUES)]


def _lines(maker: PoolMaker, decoder: Decoder) -> Made:
    delimiter = decoder.options["delimiter"]
    for number in maker.pool_numbers(decoder.parts):
        columns = [_as_text(maker.values(part.facts, (_VALUES,), number)) for part in decoder.parts]
        yield [delimiter.join(row) for row in zip(*columns, strict=True)]


def _pieces(maker: PoolMaker, decoder: Decoder) -> Made:
    separator, facts = decoder.options["separator"], decoder.parts[0].facts
    if separator in {b"-", b"/", b"."}:
        days = maker.random.integers((1990, 1, 1), (2030, 10, 10), (_VALUES, 3))
        yield [separator.join([b"%04d" % year, b"%02d" % month, b"%02d" % day]) for year, month, day in days]
    for count in _PIECES:
        yield [separator.join(_as_text(maker.values(facts, (count,)))) for _ in range(_VALUES)]


def _as_text(values: Array) -> list[bytes]:
    return [each if isinstance(each, bytes) else b"%g" % each for each in values.tolist()]


_MERGED: Mapping[str, Callable[[PoolMaker, Sequence[Decoder]], Made]] = {
    "example": _examples,
    "sequence": _examples,
    "substr": _spans,
}

#: kind of a decoder -> the maker of its strings; where several kinds decode a string, the first here is used.
_MADE: Mapping[str, Callable[[PoolMaker, Decoder], Made]] = {
    "image": _images,
    "base64": _encoded_by(lambda value, _: base64.urlsafe_b64encode(value).rstrip(b"=")),
    "wav": _sounds,
    "tensor": _tensors,
    "compressed": _encoded_by(
        lambda value, decoder: _COMPRESSIONS.get(decoder.options.get("compression") or b"", bytes)(value)
    ),
    "json": _encoded_by(lambda value, _: _example_as_json(value)),
    "raw": _raw,
    "csv": _lines,
    "split": _pieces,
    "number": _encoded_by(lambda value, _: b"%g" % value),
}


def _takes_zero(facts: Facts) -> bool:
    """Whether zero, or the empty string, is accepted as far as is known."""
    if facts.equal or facts.patterns or facts.are_picked:
        return False
    if facts.dtype == STRING:
        return all(each.kind == "split" and _takes_zero(each.parts[0].facts) for each in facts.decoders)
    bounds = facts.range()
    return (bounds is None or bounds[0] <= 0 <= bounds[1]) and 0 not in facts.unequal


def _small(dtype: np.dtype[Any]) -> Pool:
    if dtype == STRING:
        return Elements(tuple(b"%d" % number for number in range(1, 7)))
    if np.issubdtype(dtype, np.inexact):
        return Range(-2.0, 2.0)
    return {np.dtype(bool): Range(0, 1), np.dtype(np.uint8): Range(0, 255)}.get(dtype, Range(1, 3))


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
