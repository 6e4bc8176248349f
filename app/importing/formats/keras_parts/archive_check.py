"""The check of a Keras archive (a zip file with `config.json` and weights), before Keras reads it."""

from __future__ import annotations

import json
import stat
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

from app.importing.formats.keras_parts.config_check import MOST_BYTES, parse_config
from app.importing.formats.keras_parts.hdf5_check import Hdf5
from app.importing.order import CannotImport

_CONFIG = "config.json"
_METADATA = "metadata.json"
_WEIGHTS = "model.weights.h5"

#: The most members. Chosen: an archive has three, and some assets for each vocabulary.
_MOST_MEMBERS = 10_000

#: A member above so many bytes may be at most so many times larger than what is stored of it. Chosen: Keras stores
#: without compression.
_SMALL = 16 << 20
_MOST_COMPRESSION = 100

_ENCRYPTED = 0x1


class Archive:
    """An archive that was checked.

    config: the configuration of the model. version: of the Keras that wrote it. weights_bytes: of its weights.
    """

    def __init__(self, path: Path, memory_bytes: int) -> None:
        """`memory_bytes`: the most that its members may have together; 0 for no limit. Raises CannotImport."""
        self.weights_bytes = 0
        try:
            with zipfile.ZipFile(path) as archive:
                names = _check_members(archive, memory_bytes)
                if _CONFIG not in names:
                    raise CannotImport(f"it has no {_CONFIG}: it is no archive of Keras")
                self.config = parse_config(_read(archive, _CONFIG))
                self.version = _version(archive) if _METADATA in names else ""
                if _WEIGHTS not in names:
                    raise CannotImport(f"it has no {_WEIGHTS}: other forms of weights are not read")
                self.weights_bytes = Hdf5(BytesIO(archive.read(_WEIGHTS)), memory_bytes).weights_bytes
        except (zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error) as error:
            raise CannotImport(f"the archive is broken or cut off: {error}") from None


def _check_members(archive: zipfile.ZipFile, memory_bytes: int) -> set[str]:
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        raise CannotImport(f"the archive has {len(members):,} members; at most {_MOST_MEMBERS:,} are read")
    names: set[str] = set()
    for member in members:
        _check_member(member)
        if member.filename in names:
            raise CannotImport(f"the archive has {member.filename[:120]!r} twice")
        names.add(member.filename)
    total = sum(member.file_size for member in members)
    if memory_bytes and total > memory_bytes:
        raise CannotImport(
            f"the archive has {total / 2**30:.1f} GiB when it is inflated; {memory_bytes / 2**30:.1f} GiB of memory "
            "are allowed (--memory-gib)"
        )
    return names


def _check_member(member: zipfile.ZipInfo) -> None:
    name = member.filename
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in member.orig_filename:
        raise CannotImport(f"the archive has the member {name[:120]!r}, whose path leads out of it")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise CannotImport(f"the archive has the member {name[:120]!r}, which is a link")
    if member.flag_bits & _ENCRYPTED:
        raise CannotImport(f"the archive has the member {name[:120]!r}, which is encrypted")
    if member.file_size > _SMALL and member.file_size > _MOST_COMPRESSION * max(member.compress_size, 1):
        raise CannotImport(
            f"the archive has the member {name[:120]!r} of {member.file_size:,} bytes, of which "
            f"{member.compress_size:,} are stored: a bomb"
        )


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if (size := archive.getinfo(name).file_size) > MOST_BYTES:
        raise CannotImport(f"its {name} has {size:,} bytes; at most {MOST_BYTES:,} are read")
    return archive.read(name)


def _version(archive: zipfile.ZipFile) -> str:
    try:
        metadata = json.loads(_read(archive, _METADATA))
    except (ValueError, RecursionError):
        return ""
    return str(metadata.get("keras_version", "")) if isinstance(metadata, dict) else ""
