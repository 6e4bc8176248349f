"""System shared memory: regions that a client registers, and that carry tensors instead of bodies.

Regions are read and written through their file, never mapped. If a client truncated a mapped region, the next access
would end this process. Besides, the model computes on a copy that the client cannot change.

The server may open more than its clients may, so it opens only objects whose names have its prefix and that belong to
the client's user (app/transports/local_clients.py). A region belongs to that user: another user cannot unregister it.

Where callers have credentials, a region also belongs to the caller that registered it. For other callers there is no
such region: they cannot read, write, list or unregister it. An operator lists and unregisters all regions. Regions end
with their caller's credential: a later caller of the same name would have them otherwise. Without credentials all
callers are one, named ''.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from app.access.access import Permit
from app.core.errors import Forbidden, InvalidRequest, Overloaded
from app.core.inference import Buffer
from app.protocols.open_inference.parameters import Parameters, number, text
from app.transports.local_clients import UNIX_SOCKET

_FOLDER = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory lives
_KEY = re.compile(r"/?([^/\x00]{1,255})")
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_ROOT = 0

#: Each region keeps a file open. Chosen.
_MAX_REGIONS = 1024


@dataclass(frozen=True, slots=True)
class RegionSlice:
    """The place of a tensor: `byte_size` bytes of a region, from `offset` on."""

    region: str
    byte_size: int
    offset: int = 0


#: Returns the bytes of a slice. Raises InvalidRequest.
ReadRegion = Callable[[RegionSlice], Buffer]

#: Puts bytes into a slice. Raises InvalidRequest.
WriteRegion = Callable[[RegionSlice, Buffer], None]


@dataclass(frozen=True, slots=True)
class _Region:
    key: str
    offset: int
    byte_size: int
    file: int
    user: int
    owner: str


class RegionCaller(NamedTuple):
    """A caller as owner of regions: its name, '' where callers have no credentials; and whether it is an operator."""

    name: str = ""
    operator: bool = False

    @classmethod
    def of(cls, permit: Permit | None) -> RegionCaller:
        return cls() if permit is None else cls(permit.principal.name, permit.principal.rules.operates)

    def sees(self, region: _Region) -> bool:
        return self.operator or region.owner == self.name


#: The one caller where callers have no credentials.
EVERYBODY = RegionCaller()


def region_slice(parameters: Parameters) -> RegionSlice | None:
    """The slice that a tensor's parameters name; None if they name none. Raises InvalidRequest."""
    if not parameters or "shared_memory_region" not in parameters:
        return None
    if "shared_memory_byte_size" not in parameters:
        raise InvalidRequest("Parameter 'shared_memory_region' is without 'shared_memory_byte_size'; expected both")
    return RegionSlice(
        text(parameters, "shared_memory_region"),
        number(parameters, "shared_memory_byte_size"),
        number(parameters, "shared_memory_offset"),
    )


class SharedMemory:
    """The registered regions of a process. Methods raise InvalidRequest, which names the region.

    Args:
        prefix: the beginning of the names of all shared memory objects, after the optional slash.
    """

    def __init__(self, folder: Path = _FOLDER, prefix: str = "") -> None:
        self._folder = folder
        self._prefix = prefix
        self._regions: dict[tuple[str, str], _Region] = {}  # by owner and name: callers may use the same names

    def register(
        self,
        name: str,
        key: str,
        offset: int,
        byte_size: int,
        user: int = UNIX_SOCKET,
        *,
        caller: RegionCaller = EVERYBODY,
    ) -> None:
        """Register `byte_size` bytes from `offset` on of the shared memory object `key`, for a user of this machine.

        The region belongs to the caller from now on.

        Raises:
            Forbidden: the object belongs to another user, or its name does not have the prefix.
            InvalidRequest: the name is taken or empty, or there are no such bytes.
            Overloaded: too many regions are registered.
        """
        # 1. The request.
        if not name or (caller.name, name) in self._regions:
            raise InvalidRequest(f"Shared memory region {name!r} is already registered or has no name")
        if offset < 0 or byte_size <= 0:
            raise InvalidRequest(f"Shared memory region {name!r} must have an offset from 0 and a byte_size above 0")
        if len(self._regions) >= _MAX_REGIONS:
            raise Overloaded(f"{_MAX_REGIONS} shared memory regions are registered; unregister one first")

        # 2. The object: it is the user's, and long enough.
        file = self._open(name, key)
        size, owner = os.fstat(file).st_size, os.fstat(file).st_uid
        if user not in (owner, _ROOT, UNIX_SOCKET):
            os.close(file)
            raise Forbidden(f"Shared memory region {name!r}: {key[:64]!r} belongs to another user of this machine")
        if offset + byte_size > size:
            os.close(file)
            raise InvalidRequest(
                f"Shared memory region {name!r} would end at byte {offset + byte_size}; {key!r} has {size}"
            )
        self._regions[caller.name, name] = _Region(key, offset, byte_size, file, user, caller.name)

    def unregister(self, name: str = "", user: int = UNIX_SOCKET, caller: RegionCaller = EVERYBODY) -> None:
        """Remove a region, or, without a name, all regions of this user and caller. An unknown name is no error.

        An operator without a region of this name removes other callers' regions of this name.

        Raises Forbidden: another user registered the region.
        """
        # 1. Without a name all regions of the caller; with one the caller's; else, for an operator, other callers'.
        if not name:
            found = [key for key, region in self._regions.items() if (region.user, region.owner) == (user, caller.name)]
        elif (caller.name, name) in self._regions:
            found = [(caller.name, name)]
        else:
            found = [key for key, region in self._regions.items() if key[1] == name and caller.sees(region)]

        # 2. A user's regions are removed by this user only.
        if name and any(self._regions[key].user != user for key in found):
            raise Forbidden(f"Shared memory region {name!r} was registered by another user of this machine")
        for key in found:
            os.close(self._regions.pop(key).file)

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Remove the regions of callers that have gone. `gone`: whether the caller of a name has."""
        for key in [key for key in self._regions if gone(key[0])]:
            os.close(self._regions.pop(key).file)

    def close(self) -> None:
        """Remove all regions."""
        self.forget(lambda _: True)

    def status(self, name: str = "", caller: RegionCaller = EVERYBODY) -> list[dict[str, Any]]:
        """The documents of one region, or, without a name, of all regions that the caller sees."""
        seen = [
            {"name": each, "key": region.key, "offset": region.offset, "byte_size": region.byte_size}
            for (_, each), region in self._regions.items()
            if caller.sees(region) and name in ("", each)
        ]
        if name and not seen:
            raise _not_found(name)
        return seen

    def read(self, part: RegionSlice, owner: str = "") -> bytes:
        """The bytes of a slice. `owner`: the caller's name; a region of another caller is not found."""
        region = self._inside(part, owner)
        content = os.pread(region.file, part.byte_size, region.offset + part.offset)
        if len(content) < part.byte_size:
            raise InvalidRequest(f"Shared memory region {part.region!r} was cut short after it was registered")
        return content

    def write(self, part: RegionSlice, content: Buffer, owner: str = "") -> None:
        """Write to the start of a slice; the rest of it does not change. `owner`: as for `read`."""
        region = self._inside(part, owner)
        if len(content) > part.byte_size:
            raise InvalidRequest(
                f"An output of {len(content)} bytes does not fit the {part.byte_size} bytes given to it"
                f" in shared memory region {part.region!r}"
            )
        if os.fstat(region.file).st_size < region.offset + part.offset + len(content):
            raise InvalidRequest(f"Shared memory region {part.region!r} was cut short after it was registered")
        _write_all(region.file, memoryview(content).cast("B"), region.offset + part.offset, part.region)

    def _inside(self, part: RegionSlice, owner: str) -> _Region:
        region = self._regions.get((owner, part.region))
        if region is None:
            raise _not_found(part.region)
        if part.offset + part.byte_size > region.byte_size:
            raise InvalidRequest(
                f"Bytes {part.offset} to {part.offset + part.byte_size} are beyond shared memory region "
                f"{part.region!r}, which has {region.byte_size}"
            )
        return region

    def _open(self, name: str, key: str) -> int:
        found = _KEY.fullmatch(key)
        if found is None or found[1] in (".", ".."):
            raise InvalidRequest(f"Shared memory region {name!r}: key {key[:64]!r} names no shared memory object")
        if not found[1].startswith(self._prefix):
            raise Forbidden(
                f"Shared memory region {name!r}: key {key[:64]!r} does not begin with {self._prefix!r}"
                " (setting shared_memory_prefix)"
            )
        try:
            file = os.open(self._folder / found[1], _FLAGS)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "no valid name"
            raise InvalidRequest(f"Shared memory region {name!r}: cannot open {key[:64]!r}: {reason}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise InvalidRequest(f"Shared memory region {name!r}: {key[:64]!r} is no shared memory object")
        return file


def _not_found(name: str) -> InvalidRequest:
    return InvalidRequest(f"Unable to find system shared memory region: {name[:256]!r}")


def _write_all(file: int, content: memoryview, offset: int, name: str) -> None:
    """Write all of the content. Raises Overloaded if the machine has no memory left for it."""
    try:
        while content:
            written = os.pwrite(file, content, offset)
            content, offset = content[written:], offset + written
    except OSError as error:
        raise Overloaded(f"Shared memory region {name!r} cannot be written: {error.strerror}") from None
