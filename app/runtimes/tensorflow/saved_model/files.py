"""The check whether the files of a SavedModel are whole, without TensorFlow: quick, and possible in another process.

Three formats are read as far as needed: protobuf's wire format (saved_model.pb), the table of variables.index
(LevelDB's format), and the entries of that table (BundleEntryProto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, NamedTuple

from app.model_files import NO_MODEL

# Protobuf: the wire types, and the numbers of the fields that are read.
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_META_GRAPHS = 2  # of SavedModel
_META_INFO, _SAVER, _SIGNATURES, _ASSET_FILES = 1, 3, 5, 6  # of MetaGraphDef
_TAGS = 4  # of MetaInfoDef
_KEY = 1  # of an entry of a map
_ASSET_NAME = 2  # of AssetFileDef
_NUM_SHARDS = 1  # of BundleHeaderProto
_SHARD, _OFFSET, _SIZE = 3, 4, 5  # of BundleEntryProto

# A table ends with 48 bytes: two places of blocks, padding, and the magic number of the format.
_FOOTER_BYTES, _TABLE = 48, struct.pack("<Q", 0xDB4775248B80FB57)
_BLOCK_TRAILER_BYTES = 5


class CutShort(ValueError):
    """The file does not have its format: most likely it is still being copied."""


class _Graph(NamedTuple):
    """The other files of a saved_model.pb: the names of its assets, and whether a load reads variables.

    A load does if there is a SaverDef. TensorFlow 2 always writes one, and variables.index with it, even for a model
    without variables; TensorFlow 1 does both only if there are some.
    """

    assets: list[str]
    reads_variables: bool


class _Shards(NamedTuple):
    """The number of files of the variables, and the least bytes of each, by its number."""

    total: int
    sizes: dict[int, int]


def missing_part(version: Path) -> str:
    """The part that is missing in the folder of a version, or cut short; empty if it is whole.

    Raises OSError: a file cannot be read.
    """
    graph = version / "saved_model.pb"
    if not graph.exists():
        return "" if (version / "saved_model.pbtxt").exists() else NO_MODEL
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
    """The other files that a saved_model.pb names. The graph itself, which may be large, is skipped.

    Raises CutShort: the file does not parse.
    """
    assets, reads_variables, found = list[str](), False, False
    with graph.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(0)
        for meta_graph in _fields(file, end):
            if meta_graph.number == _META_GRAPHS:
                found = True
                for field in _fields(file, file.tell() + meta_graph.length):
                    reads_variables |= field.number == _SAVER
                    if field.number == _ASSET_FILES:
                        assets += _asset_names(file, file.tell() + field.length)
    if not found:
        raise CutShort
    return _Graph(assets, reads_variables)


def has_signatures(graph: Path) -> bool:
    """Whether a saved_model.pb has a graph for serving with a signature for callers.

    Raises OSError. A file that does not parse has none.
    """
    with graph.open("rb") as file, suppress(CutShort):
        end = file.seek(0, 2)
        file.seek(0)
        for meta_graph in _fields(file, end):
            if meta_graph.number == _META_GRAPHS and _serves(file, file.tell() + meta_graph.length):
                return True
    return False


def _serves(file: BinaryIO, end: int) -> bool:
    """Whether the MetaGraphDef that ends at `end` has the tag 'serve' alone, and a signature for callers."""
    tags, signatures = list[str](), list[str]()
    for field in _fields(file, end):
        if field.number == _META_INFO:
            tags += _texts(file, file.tell() + field.length, _TAGS)
        elif field.number == _SIGNATURES:
            signatures += _texts(file, file.tell() + field.length, _KEY)
    return tags == ["serve"] and any(not name.startswith("__saved_model_") for name in signatures)


def _asset_names(file: BinaryIO, end: int) -> Iterator[str]:
    return _texts(file, end, _ASSET_NAME)


def _texts(file: BinaryIO, end: int, number: int) -> Iterator[str]:
    """The texts of the fields of this number in a message that ends at `end`."""
    for field in _fields(file, end):
        if field.number == number:
            yield file.read(field.length).decode(errors="surrogateescape")


class _Field(NamedTuple):
    """A field of a message: the value of a whole number, or the bytes of its content."""

    number: int
    length: int
    value: int | None = None


def _fields(file: BinaryIO, end: int) -> Iterator[_Field]:
    """The fields of a message that ends at `end`; the file stands at the content of the present one."""
    while file.tell() < end:
        number, wire_type = divmod(_varint(file), 8)
        value, length = None, {_VARINT: 0, _EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(wire_type, -1)
        if wire_type == _VARINT:
            value = _varint(file)
        elif wire_type == _BYTES:
            length = _varint(file)
        following = file.tell() + length
        if not number or length < 0 or following > end:
            raise CutShort
        yield _Field(number, length, value)
        file.seek(following)


def _varint(file: BinaryIO) -> int:
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
    """The shards that a variables.index names. Raises CutShort."""
    if len(table) < _FOOTER_BYTES or not table.endswith(_TABLE):
        raise CutShort
    footer = BytesIO(table[-_FOOTER_BYTES:])
    _varint(footer), _varint(footer)  # the place of a block that is not read
    total, sizes = 0, dict[int, int]()
    for _, place in _block(table, footer.read()):
        for key, entry in _block(table, place):
            fields = {field.number: field.value or 0 for field in _fields(BytesIO(entry), len(entry))}
            if not key:  # the header
                total = fields.get(_NUM_SHARDS, 0)
            else:
                shard = fields.get(_SHARD, 0)
                sizes[shard] = max(sizes.get(shard, 0), fields.get(_OFFSET, 0) + fields.get(_SIZE, 0))
    return _Shards(total, sizes)


def _block(table: bytes, place: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of the block at a place: offset and size. Blocks of variables.index are not compressed."""
    numbers = BytesIO(place)
    start, size = _varint(numbers), _varint(numbers)
    end = start + size
    if end + _BLOCK_TRAILER_BYTES > len(table) or size < 4:
        raise CutShort
    if table[end] != 0:  # compressed: TensorFlow does not write this, so nothing is known
        return
    (restarts,) = struct.unpack_from("<I", table, end - 4)
    end -= 4 + 4 * restarts
    key, block = b"", BytesIO(table[start : max(start, end)])
    while block.tell() < end - start:
        shared, unshared, length = _varint(block), _varint(block), _varint(block)
        if block.tell() + unshared + length > end - start:
            raise CutShort
        key = key[:shared] + block.read(unshared)
        yield key, block.read(length)
