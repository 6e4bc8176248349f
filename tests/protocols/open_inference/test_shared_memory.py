from __future__ import annotations

import errno
import os

import pytest

from app.core.errors import Forbidden, InvalidRequest, Overloaded
from app.protocols.open_inference import shared_memory as open_inference_memory
from app.protocols.open_inference.shared_memory import RegionCaller, RegionSlice, SharedMemory, region_slice


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "k").write_bytes(bytes(range(16)))
    return tmp_path


@pytest.fixture
def memory(folder):
    memory = SharedMemory(folder)
    yield memory
    memory.close()


def test_a_region_is_read_and_written_from_its_offset(memory, folder):
    memory.register("r", "/k", 4, 8)
    assert memory.read(RegionSlice("r", 3, 1)) == bytes([5, 6, 7])
    memory.write(RegionSlice("r", 4, 4), b"\xff\xfe")
    assert (folder / "k").read_bytes() == bytes([*range(8), 0xFF, 0xFE, *range(10, 16)])


def test_status_and_unregister(memory):
    memory.register("r", "k", 0, 16)
    memory.register("s", "k", 8, 8)
    r = {"name": "r", "key": "k", "offset": 0, "byte_size": 16}
    s = {"name": "s", "key": "k", "offset": 8, "byte_size": 8}
    assert memory.status() == [r, s]
    assert memory.status("s") == [s]
    memory.unregister("r")
    memory.unregister("never there")
    assert memory.status() == [s]
    memory.unregister()
    assert memory.status() == []


def test_no_file_stays_open(memory):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        memory.register("r", "k", 0, 16)
        memory.unregister("r")
        for size in (17, 0):
            with pytest.raises(InvalidRequest):
                memory.register("r", "k", 0, size)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "key", ["", "/", ".", "..", "/..", "../k", "//k", "k/", "a/b", "/dev/../k", "k\x00", "none", "x" * 300, "\ud800"]
)
def test_keys_outside_the_folder_are_rejected(memory, key):
    with pytest.raises(InvalidRequest, match="Shared memory region 'r'"):
        memory.register("r", key, 0, 1)


def test_links_folders_and_pipes_are_rejected(memory, folder):
    (folder / "link").symlink_to(folder / "k")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    for key in ("link", "folder", "pipe"):
        with pytest.raises(InvalidRequest):
            memory.register("r", key, 0, 1)


@pytest.mark.parametrize(
    ("name", "offset", "size"), [("r", 0, 17), ("r", 16, 1), ("r", 0, 0), ("r", -1, 4), ("", 0, 1), ("r", 2**70, 1)]
)
def test_what_cannot_be_registered(memory, name, offset, size):
    with pytest.raises(InvalidRequest):
        memory.register(name, "k", offset, size)


def test_a_name_is_registered_once(memory):
    memory.register("r", "k", 0, 1)
    with pytest.raises(InvalidRequest, match="already registered"):
        memory.register("r", "k", 0, 1)


def test_regions_have_a_limit(memory, monkeypatch):
    monkeypatch.setattr(open_inference_memory, "_MAX_REGIONS", 1)
    memory.register("r", "k", 0, 1)
    with pytest.raises(Overloaded):
        memory.register("s", "k", 0, 1)


@pytest.mark.parametrize("part", [RegionSlice("r", 9), RegionSlice("r", 1, 8), RegionSlice("r", 2**64, 1)])
def test_nothing_beyond_the_region_is_touched(memory, part):
    memory.register("r", "k", 4, 8)
    with pytest.raises(InvalidRequest, match="beyond shared memory region 'r'"):
        memory.read(part)
    with pytest.raises(InvalidRequest, match="beyond shared memory region 'r'"):
        memory.write(part, b"")


def test_an_output_must_fit_its_slice(memory):
    memory.register("r", "k", 0, 16)
    with pytest.raises(InvalidRequest, match="3 bytes does not fit the 2 bytes"):
        memory.write(RegionSlice("r", 2), b"123")


ME, OTHER = os.getuid(), os.getuid() + 1


def test_another_user_neither_unregisters_a_region_nor_all(memory):
    memory.register("r", "k", 0, 16, ME)
    with pytest.raises(Forbidden, match="'r' was registered by another user of this machine"):
        memory.unregister("r", OTHER)
    memory.unregister("", OTHER)
    assert [each["name"] for each in memory.status()] == ["r"]
    memory.unregister("", ME)
    assert memory.status() == []


def test_an_object_of_another_user_is_not_opened_for_a_client(folder):
    """The server could read what its client cannot."""
    memory, before = SharedMemory(folder), len(os.listdir("/proc/self/fd"))
    with pytest.raises(Forbidden, match="'k' belongs to another user of this machine"):
        memory.register("r", "k", 0, 16, OTHER)
    assert len(os.listdir("/proc/self/fd")) == before
    assert memory.status() == []


def test_only_objects_with_the_servers_prefix_are_opened(folder):
    (folder / "ferry_k").write_bytes(bytes(4))
    memory = SharedMemory(folder, "ferry_")
    for key in ("k", "/k", "kferry_"):
        with pytest.raises(Forbidden, match=r"does not begin with 'ferry_' \(setting shared_memory_prefix\)"):
            memory.register("r", key, 0, 1)
    memory.register("r", "/ferry_k", 0, 4)
    memory.register("s", "ferry_k", 0, 4)
    memory.close()
    assert memory.status() == []


def test_what_the_kernel_writes_in_pieces_is_written_whole(memory, folder, monkeypatch):
    """pwrite(2) may write less than it is given."""
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, offset: whole(file, content[:3], offset))
    memory.register("r", "k", 0, 16)
    memory.write(RegionSlice("r", 8, 2), b"01234567")
    assert (folder / "k").read_bytes() == bytes([0, 1]) + b"01234567" + bytes(range(10, 16))


def test_memory_that_is_full_is_told(memory, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    memory.register("r", "k", 0, 16)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Overloaded, match="region 'r' cannot be written: No space left on device"):
        memory.write(RegionSlice("r", 8), bytes(8))


def test_a_region_that_its_owner_truncates_gives_an_error(memory, folder):
    memory.register("r", "k", 0, 16)
    os.truncate(folder / "k", 8)
    for act in (lambda: memory.read(RegionSlice("r", 16)), lambda: memory.write(RegionSlice("r", 16), bytes(16))):
        with pytest.raises(InvalidRequest, match="was cut short"):
            act()


def test_an_unregistered_region_is_not_found(memory):
    for act in (lambda: memory.read(RegionSlice("r", 1)), lambda: memory.status("r")):
        with pytest.raises(InvalidRequest, match="Unable to find system shared memory region: 'r'"):
            act()


@pytest.mark.parametrize(
    ("parameters", "part"),
    [
        ({}, None),
        ({"x": 1}, None),
        ({"shared_memory_region": "r", "shared_memory_byte_size": 4}, RegionSlice("r", 4, 0)),
    ],
)
def test_slices(parameters, part):
    assert region_slice(parameters) == part


@pytest.mark.parametrize(
    "parameters",
    [
        {"shared_memory_region": "r"},
        {"shared_memory_region": 1, "shared_memory_byte_size": 4},
        {"shared_memory_region": "r", "shared_memory_byte_size": -4},
        {"shared_memory_region": "r", "shared_memory_byte_size": 4, "shared_memory_offset": "0"},
    ],
)
def test_malformed_slices_are_rejected(parameters):
    with pytest.raises(InvalidRequest):
        region_slice(parameters)


ONE, OTHER_ONE, OPERATOR = RegionCaller("one"), RegionCaller("other"), RegionCaller("chief", operator=True)


def test_for_others_than_the_caller_who_registered_it_there_is_no_such_region(memory, folder):
    memory.register("r", "k", 0, 16, caller=ONE)
    before = (folder / "k").read_bytes()
    for other in (OTHER_ONE, OPERATOR):
        for touch in (memory.read, lambda part, owner: memory.write(part, b"\xff", owner)):
            with pytest.raises(InvalidRequest, match="Unable to find system shared memory region: 'r'"):
                touch(RegionSlice("r", 4), other.name)
    with pytest.raises(InvalidRequest, match="Unable to find system shared memory region: 'r'"):
        memory.status("r", OTHER_ONE)
    assert memory.status("", OTHER_ONE) == []
    for name in ("r", ""):
        memory.unregister(name, caller=OTHER_ONE)
    memory.unregister("", caller=OPERATOR)  # its own: none
    assert memory.read(RegionSlice("r", 16), "one") == before


def test_an_operator_lists_all_regions_and_unregisters_any(memory):
    memory.register("r", "k", 0, 16, caller=ONE)
    memory.register("s", "k", 0, 16, caller=OTHER_ONE)
    assert [each["name"] for each in memory.status("", OPERATOR)] == ["r", "s"]
    assert [each["name"] for each in memory.status("s", OPERATOR)] == ["s"]
    memory.unregister("r", caller=OPERATOR)
    assert [each["name"] for each in memory.status("", OPERATOR)] == ["s"]
