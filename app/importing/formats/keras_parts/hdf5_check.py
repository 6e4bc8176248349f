"""The check of an HDF5 file, before Keras reads it.

1. It reads no other file: no external links, no soft links, no external or virtual storage.
2. Its datasets are not larger than the file can hold: a dataset that declares 10^9 numbers, stored in no bytes, is a
   bomb; all together fit into the memory of the import.
3. It ends: objects are counted, and each is visited once, though links may form circles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import h5py

from app.importing.order import CannotImport

#: The most objects of a file. Chosen: a large model has some 10,000.
_MOST_OBJECTS = 500_000

#: A dataset above so many bytes may be at most so many times larger than what is stored of it. Chosen: gzip makes
#: float weights hardly smaller, and zeros (biases) are small.
_SMALL = 64 << 20
_MOST_COMPRESSION = 100


def check_hdf5(file: Any, memory_bytes: int) -> int:
    """The bytes of all datasets of an open file. `memory_bytes`: the most; 0 for no limit. Raises CannotImport."""
    total = 0
    for name, found in _objects(file):
        if isinstance(found, h5py.Dataset):
            total += _check_dataset(name, found)
            if memory_bytes and total > memory_bytes:
                raise CannotImport(
                    f"its weights have more than {total / 2**30:.1f} GiB; {memory_bytes / 2**30:.1f} GiB of memory "
                    "are allowed (--memory-gib)"
                )
    return total


def _objects(file: Any) -> Iterator[tuple[str, Any]]:
    """All groups and datasets by their path. Raises CannotImport: a link leads elsewhere, or there are too many."""
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[str, Any]] = [("", file)]
    while waiting:
        path, group = waiting.pop()
        for key in group:
            name = f"{path}/{key}"
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise CannotImport(f"{name[:120]} is a {type(link).__name__} to {_target(link)}; only data is read")
            found = group[key]
            where = h5py.h5o.get_info(found.id)
            if (place := (where.fileno, where.addr)) in seen:
                continue
            seen.add(place)
            if len(seen) > _MOST_OBJECTS:
                raise CannotImport(f"it has more than {_MOST_OBJECTS:,} groups and datasets")
            yield name, found
            if isinstance(found, h5py.Group):
                waiting.append((name, found))


def _target(link: Any) -> str:
    return f"{getattr(link, 'filename', '')}{getattr(link, 'path', '')}"[:120]


def _check_dataset(name: str, dataset: Any) -> int:
    if dataset.external or dataset.is_virtual:
        raise CannotImport(f"{name[:120]} reads another file; only data in the file itself is read")
    declared, stored = int(dataset.nbytes), int(dataset.id.get_storage_size())
    if declared > _SMALL and declared > _MOST_COMPRESSION * max(stored, 1):
        raise CannotImport(f"{name[:120]} declares {declared:,} bytes of which {stored:,} are stored: a bomb")
    return declared


class Hdf5:
    """An HDF5 file that was checked: what its attributes say of the model.

    weights_bytes: the bytes of all datasets. config: the text of the model's configuration, None if it has none.
    version: of the Keras that wrote it, '' if it does not say.
    """

    def __init__(self, source: Path | IO[bytes], memory_bytes: int) -> None:
        """Raises CannotImport."""
        try:
            with h5py.File(source, "r") as file:
                self.weights_bytes = check_hdf5(file, memory_bytes)
                self.config = _attribute(file, "model_config")
                self.version = (_attribute(file, "keras_version") or b"").decode(errors="replace")
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            if isinstance(error, CannotImport):
                raise
            line = " ".join(str(error).split())[:160]
            raise CannotImport(f"its HDF5 part is broken or cut off: {line}") from None


def _attribute(file: Any, name: str) -> bytes | None:
    for place in (file, file.get("model_weights")):
        if place is not None and (value := place.attrs.get(name)) is not None:
            return value if isinstance(value, bytes) else str(value).encode()
    return None
