"""What a kind of GPU never loads becomes zeros; all else, and every place in a library, stays."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slim_wheels import CODE, PTX, containers, prune, slim

Entries = list[tuple[int, int, bytes]]

ENTRIES: st.SearchStrategy[Entries] = st.lists(
    st.tuples(st.sampled_from([PTX, CODE, 8]), st.sampled_from([50, 80, 90, 120]), st.binary(min_size=1, max_size=20)),
    min_size=1,
    max_size=5,
)


def container(entries: Entries) -> bytes:
    content = b"".join(
        struct.pack("<HHIQ", kind, 257, 64, len(payload)).ljust(28, b"\1")
        + struct.pack("<I", capability).ljust(36, b"\2")
        + payload
        for kind, capability, payload in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def pruned(*parts: bytes, architecture: int = 90) -> bytes:
    library = bytearray(b"".join(parts))
    prune(library, architecture)
    return bytes(library)


def kept(entries: Entries, architecture: int = 90) -> list[bool]:
    library = pruned(b"before", container(entries), b"after", architecture=architecture)
    (found,) = containers(library)
    return [any(library[each.start : each.end]) for each in found]


def test_code_of_the_gpu_alone_stays() -> None:
    assert kept([(CODE, 80, b"a"), (CODE, 90, b"b"), (PTX, 90, b"c"), (8, 90, b"d")]) == [False, True, False, False]


def test_where_it_has_no_code_text_that_it_can_compile_stays() -> None:
    assert kept([(CODE, 80, b"a"), (PTX, 80, b"b"), (PTX, 120, b"c")]) == [False, True, False]


@given(st.lists(ENTRIES, max_size=3), st.binary(max_size=10))
def test_every_place_stays(all_entries: list[Entries], between: bytes) -> None:
    whole = between.join(map(container, all_entries)) + between
    library = pruned(whole)
    assert len(library) == len(whole)
    for before, after in zip(containers(whole), containers(library), strict=True):
        assert before == after
        for kind, capability, start, end in before:
            if (kind, capability) == (CODE, 90):
                assert library[start:end] == whole[start:end]


@pytest.mark.parametrize("cut", range(1, 100, 7))
def test_what_only_looks_like_kernels_is_left_alone(cut: int) -> None:
    whole = container([(CODE, 80, b"kernel")])
    assert pruned(whole[:-cut]) == whole[:-cut]


def test_a_wheel_keeps_all_but_headers_and_static_libraries(tmp_path: Path) -> None:
    kernels = container([(CODE, 80, b"k" * (1 << 20)), (CODE, 90, b"own")])
    with zipfile.ZipFile(tmp_path / "whole.whl", "w") as wheel:
        wheel.writestr("nvidia/lib/libx.so.12", kernels)
        wheel.writestr("nvidia/lib/libx_static.a", b"archive")
        wheel.writestr("nvidia/include/x.h", b"header")
        wheel.writestr("nvidia/__init__.py", b"")
    slim(tmp_path / "whole.whl", tmp_path / "slim.whl", 90)
    with zipfile.ZipFile(tmp_path / "slim.whl") as wheel:
        assert wheel.namelist() == ["nvidia/lib/libx.so.12", "nvidia/__init__.py"]
        assert wheel.read("nvidia/lib/libx.so.12") == pruned(kernels)
    assert (tmp_path / "slim.whl").stat().st_size < 10_000
