"""Makes the wheels of CUDA and TensorFlow smaller, for a machine with one kind of GPU: 1.3 of 3.3 GB are left.

    python .ci/slim_wheels.py WHEELS SLIM --architecture 90

NVIDIA's libraries hold the code of each kernel for eight kinds of GPU, and more text for those to come. What the GPU of
this compute capability (90: 9.0) never loads becomes zeros, which compress to nothing; the files keep their sizes and
all places in them. Headers and static libraries are left out. For measurements alone: what is served comes as it was
published. With these wheels go on as with the others (.ci/gpu_wheels.py cut).

Source of the form: the headers that `cuobjdump -all` shows, and cuda/include/fatbinary_section.h. A container has a
header of 16 bytes (magic, version, its own size, bytes of the entries), and entries of 64 bytes or more (kind, version,
own size, bytes of the payload, ..., at byte 28 the compute capability), each before its payload.
"""

from __future__ import annotations

import argparse
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_MAGIC, _VERSION = 0xBA55ED50, 1
_CONTAINER, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQ")
_CAPABILITY, _CAPABILITY_AT = struct.Struct("<I"), 28

#: Kinds of payloads: PTX, which the driver compiles, and code of one kind of GPU.
PTX, CODE = 1, 2

#: Smaller files hold no libraries worth the search. Chosen.
_LEAST_BYTES = 1 << 20


class Payload(NamedTuple):
    """What one entry holds, and where."""

    kind: int
    capability: int
    start: int
    end: int


def containers(library: bytes | bytearray) -> Iterator[list[Payload]]:
    """The payloads of each container of kernels. What only looks like one is left out."""
    magic, at = struct.pack("<I", _MAGIC), 0
    while (at := library.find(magic, at)) >= 0:
        payloads = _payloads(library, at)
        if payloads is None:
            at += len(magic)
        else:
            yield payloads
            at = payloads[-1].end if payloads else at + _CONTAINER.size


def _payloads(library: bytes | bytearray, at: int) -> list[Payload] | None:
    if at + _CONTAINER.size > len(library):
        return None
    _, version, header, size = _CONTAINER.unpack_from(library, at)
    at, end = at + header, at + header + size
    if version != _VERSION or header != _CONTAINER.size or end > len(library):
        return None
    found = []
    while at < end:
        if at + _CAPABILITY_AT + _CAPABILITY.size > end:
            return None
        kind, _, header, size = _ENTRY.unpack_from(library, at)
        (capability,) = _CAPABILITY.unpack_from(library, at + _CAPABILITY_AT)
        start = at + header
        at = start + size
        if header < _CAPABILITY_AT + _CAPABILITY.size or at > end:
            return None
        found.append(Payload(kind, capability, start, at))
    return found


def prune(library: bytearray, architecture: int) -> int:
    """Zeros what a GPU of this compute capability never loads. Returns how many bytes became zeros.

    It loads code of its own kind; where a container has none, PTX of its own kind or an older one.
    """
    zeroed = 0
    for payloads in containers(library):
        own = any((each.kind, each.capability) == (CODE, architecture) for each in payloads)
        for kind, capability, start, end in payloads:
            wanted = capability == architecture if kind == CODE else not own and capability <= architecture
            if not wanted:
                library[start:end] = bytes(end - start)
                zeroed += end - start
    return zeroed


def slim(wheel: Path, out: Path, architecture: int) -> None:
    """Writes the wheel without what such a machine never loads. Raises BadZipFile."""
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as smaller:
        for entry in whole.infolist():
            path = PurePosixPath(entry.filename)
            if "include" in path.parts or path.suffix == ".a":
                continue
            content = bytearray(whole.read(entry))
            if ".so" in path.name and len(content) >= _LEAST_BYTES:
                prune(content, architecture)
            smaller.writestr(entry, content, zipfile.ZIP_DEFLATED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("slim", type=Path)
    parser.add_argument("--architecture", type=int, required=True, help="compute capability, such as 90 for 9.0")
    given = parser.parse_args()
    given.slim.mkdir(parents=True, exist_ok=True)
    before = after = 0
    for wheel in sorted(given.wheels.glob("*.whl")):
        out = given.slim / wheel.name
        slim(wheel, out, given.architecture)
        before, after = before + wheel.stat().st_size, after + out.stat().st_size
    if not before:
        sys.exit(f"{given.wheels} has no wheels")
    print(f"{before / 2**20:,.0f} MiB became {after / 2**20:,.0f} MiB in {given.slim}")


if __name__ == "__main__":
    main()
