"""What a file is by its first bytes, since names of files say it wrongly: old Keras wrote HDF5 into `.keras` files."""

from __future__ import annotations

from pathlib import Path

from app.importing.order import CannotImport

_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZIP = b"PK\x03\x04"

#: The offsets at which HDF5 may begin: 0, and powers of two from 512 (a user block before it).
_HDF5_OFFSETS = (0, *(512 << n for n in range(16)))


def content_of(path: Path) -> str:
    """'zip', 'hdf5', 'pickle', 'empty' or '' for anything else. Raises CannotImport: it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
            if head.startswith(_ZIP):
                return "zip"
            for offset in _HDF5_OFFSETS:
                file.seek(offset)
                if file.read(len(_HDF5)) == _HDF5:
                    return "hdf5"
    except OSError as error:
        raise CannotImport(f"{path.name} cannot be read: {error.strerror}") from None
    return _of_head(head)


def _of_head(head: bytes) -> str:
    if not head:
        return "empty"
    # Protocols 2 to 5 begin with PROTO and their number, then FRAME or an opcode; joblib compresses with zlib.
    is_pickle = len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5
    return "pickle" if is_pickle else ""


def describe(path: Path) -> str:
    """A file that is of no format of Keras, for an error: its size and its first bytes."""
    with path.open("rb") as file:
        head = file.read(8)
    return f"it has {path.stat().st_size:,} bytes and begins with {head!r}"
