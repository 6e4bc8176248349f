"""Whether the files of a SavedModel are whole, without TensorFlow: another process may ask, and quickly.

Three formats are read as far as it takes: protobuf's wire format (saved_model.pb), the table of variables.index
(LevelDB's format), and the entries of that table (BundleEntryProto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, NamedTuple

# Protobuf: the wire types, and the numbers of the fields that are read.
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_META_GRAPHS = 2  # of SavedModel
_SAVER, _ASSET_FILES = 3, 6  # of MetaGraphDef
_ASSET_NAME = 2  # of AssetFileDef
_NUM_SHARDS = 1  # of BundleHeaderProto
_SHARD, _OFFSET, _SIZE = 3, 4, 5  # of BundleEntryProto

# A table ends with 48 bytes: two places of blocks, padding, and a number that says what it is.
_FOOTER_BYTES, _TABLE = 48, struct.pack("<Q", 0xDB4775248B80FB57)
_BLOCK_TRAILER_BYTES = 5


class CutShort(ValueError):
    """The file is not what it should be: most likely it is still being copied."""


class _Graph(NamedTuple):
    """What a saved_model.pb says of other files: the names of its assets, and whether a load reads variables.

    It does if there is a SaverDef. TensorFlow 2 always writes one, and variables.index with it, even for a model that
    has no variables; TensorFlow 1 does both only if there are some.
    """

    assets: list[str]
    reads_variables: bool


class _Shards(NamedTuple):
    """How many files the variables have, and how many bytes each has at least, by its number."""

    total: int
    sizes: dict[int, int]


def missing_part(version: Path) -> str:
    """What is missing in the folder of a version, or cut short; empty if it is whole.

    Raises OSError: a file cannot be read.
    """
    graph = version / "saved_model.pb"
    if not graph.exists():
        return "" if (version / "saved_model.pbtxt").exists() else "it holds neither saved_model.pb nor pipeline.yaml"
    try:
        assets, reads_variables = read_graph(graph)
    except CutShort:
        return f"saved_model.pb, of {graph.stat().st_size:,} bytes, is cut short or no SavedModel"
    for name in assets:
        if not (version / "assets" / name).exists():
            return f"assets/{name} is not there"
    return _missing_variables(version / "variables", reads_variables)


def _missing_variables(folder: Path, are_read: bool) -> str:
    index = folder / "variables.index"
    if not index.exists():  # files of another name may be of a format before this one
        nothing = not (folder.is_dir() and any(folder.iterdir()))
        is_missing = (are_read and nothing) or any(folder.glob("variables.data-*"))
        return "variables/variables.index is not there" if is_missing else ""
    try:
        shards = read_index(index.read_bytes())
    except CutShort:
        return f"variables/variables.index, of {index.stat().st_size:,} bytes, is cut short or no index"
    for number in range(shards.total):
        name = f"variables.data-{number:05}-of-{shards.total:05}"
        try:
            stat = (folder / name).stat()
        except FileNotFoundError:
            return f"variables/{name} is not there"
        expected = shards.sizes.get(number, 0)
        if S_ISREG(stat.st_mode) and stat.st_size < expected:
            return f"variables/{name} is {stat.st_size:,} bytes, its index says {expected:,}"
    return ""


# --- the graph ---


def read_graph(graph: Path) -> _Graph:
    """What a saved_model.pb says of other files. The graph itself, which may be large, is skipped.

    Raises CutShort: the file does not parse.
    """
    assets, reads_variables = list[str](), False
    with graph.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(0)
        found = False
        for number, length in _fields(file, end):
            if number == _META_GRAPHS:
                found = True
                meta_graph_end = file.tell() + length
                for field, size in _fields(file, meta_graph_end):
                    reads_variables |= field == _SAVER
                    if field == _ASSET_FILES:
                        assets += [
                            name.decode(errors="surrogateescape")
                            for name in _bytes_fields(file.read(size), _ASSET_NAME)
                        ]
        if not found:
            raise CutShort
    return _Graph(assets, reads_variables)


def _fields(file: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    """Number and length of each field of a message that ends at `end`; the file stands at its content."""
    while (at := file.tell()) < end:
        number, wire_type = divmod(_varint_of(file), 8)
        if wire_type == _VARINT:
            length = 0
            _varint_of(file)
        else:
            length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(wire_type, -1)
            length = _varint_of(file) if wire_type == _BYTES else length
        following = file.tell() + length
        if not number or length < 0 or following > end or following <= at:
            raise CutShort
        yield number, length
        file.seek(following)


def _varint_of(file: BinaryIO) -> int:
    value = shift = 0
    while True:
        byte = file.read(1)
        if not byte or shift > 63:
            raise CutShort
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7


# --- the index of the variables ---


def read_index(table: bytes) -> _Shards:
    """What the variables.index says of its shards. Raises CutShort."""
    if len(table) < _FOOTER_BYTES or not table.endswith(_TABLE):
        raise CutShort
    footer = table[-_FOOTER_BYTES:]
    _, at = _varint(footer, 0)
    _, at = _varint(footer, at)
    total, sizes = 0, dict[int, int]()
    for _, place in _block(table, footer[at:]):
        for key, entry in _block(table, place):
            fields = _numbers(entry)
            if not key:  # the header
                total = fields.get(_NUM_SHARDS, 0)
            else:
                shard = fields.get(_SHARD, 0)
                sizes[shard] = max(sizes.get(shard, 0), fields.get(_OFFSET, 0) + fields.get(_SIZE, 0))
    return _Shards(total, sizes)


def _block(table: bytes, place: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the block at a place: offset and size. Blocks of variables.index are not compressed."""
    start, at = _varint(place, 0)
    size, _ = _varint(place, at)
    end = start + size
    if end + _BLOCK_TRAILER_BYTES > len(table) or size < 4:
        raise CutShort
    if table[end] != 0:  # compressed: TensorFlow does not write this, so nothing is known
        return
    (restarts,) = struct.unpack_from("<I", table, end - 4)
    end -= 4 + 4 * restarts
    key, at = b"", start
    while at < end:
        shared, at = _varint(table, at)
        unshared, at = _varint(table, at)
        length, at = _varint(table, at)
        if at + unshared + length > end:
            raise CutShort
        key = key[:shared] + table[at : at + unshared]
        at += unshared
        yield key, table[at : at + length]
        at += length


def _numbers(message: bytes) -> dict[int, int]:
    """The fields of a message that are whole numbers."""
    return {number: value for number, value in _parse(message) if isinstance(value, int)}


def _bytes_fields(message: bytes, wanted: int) -> list[bytes]:
    return [value for number, value in _parse(message) if number == wanted and isinstance(value, bytes)]


def _parse(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire_type = divmod(tag, 8)
        if wire_type == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(wire_type, -1)
        if wire_type == _BYTES:
            length, at = _varint(message, at)
        if length < 0 or at + length > len(message):
            raise CutShort
        yield number, message[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place behind it."""
    value = shift = 0
    while at < len(data) and shift <= 63:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise CutShort
