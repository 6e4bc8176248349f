import asyncio
import ctypes
import gc
import platform
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from app.server import memory
from app.server.memory import give_back_while_idle, keep_freed_memory, spared_from_collection
from tests.support.fakes import run_in_fake_time
from tests.support.waiting import HANG_S


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """The starts and stops of all collections during the test, after which the collector is as before."""
    told: list[str] = []

    def tell(phase: str, _: dict[str, Any]) -> None:
        told.append(phase)

    thresholds = gc.get_threshold()
    gc.callbacks.append(tell)
    yield told
    gc.callbacks.remove(tell)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="THE C LIBRARY IS NOT GLIBC: mallopt WAS NOT TRIED")
def test_glibc_takes_the_thresholds() -> None:
    assert keep_freed_memory()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()


def test_what_starts_up_is_never_walked_by_a_collection(collections: list[str]) -> None:
    frozen, started_up = gc.get_freeze_count(), []
    with spared_from_collection():
        started_up += [[number] for number in range(100_000)]
        assert not collections
    assert not collections
    assert gc.get_freeze_count() >= frozen + len(started_up)
    assert gc.isenabled()


def test_a_start_that_fails_leaves_the_collector_on(collections: list[str]) -> None:
    with pytest.raises(ValueError, match="no runtime"), spared_from_collection():
        raise ValueError("no runtime")
    assert gc.isenabled()


def test_memory_is_given_back_while_nothing_is_computed_and_only_if_it_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resident, idle, given_back = [400 * 1024**2], [True], [0]

    def give_back() -> None:
        given_back[0] += 1
        resident[0] = min(resident[0], 300 * 1024**2)

    async def main() -> None:
        task = asyncio.create_task(give_back_while_idle(lambda: idle[0]))
        told = []
        for grown, free in ((0, True), (100, True), (900, False), (900, True), (100, True)):
            resident[0] = 300 * 1024**2 + grown * 1024**2 if told else resident[0]
            idle[0] = free
            await asyncio.sleep(10.0)
            await asyncio.sleep(1.0)
            told.append(given_back[0])
        assert told == [1, 1, 1, 2, 2]
        task.cancel()

    async def here(work: Any) -> None:
        work()

    monkeypatch.setattr(memory, "resident_bytes", lambda: resident[0])
    monkeypatch.setattr(memory, "used_bytes", lambda: 0)
    monkeypatch.setattr(memory, "give_back", give_back)
    monkeypatch.setattr(asyncio, "to_thread", here)
    run_in_fake_time(main())


#: Holds 600 MB while memory is given back, frees them, and tells after three looks by how many MB RSS has grown.
_HOLD_AND_FREE = """
import asyncio
from app.core.machine_memory import resident_bytes
from app.server import memory

async def main():
    looks = asyncio.Queue()
    asyncio.create_task(memory.give_back_while_idle(lambda: looks.put_nowait(None) or True))
    before = resident_bytes()
    held = [bytearray(2**20) for _ in range(600)]
    pins = [bytearray(100) for _ in range(100_000)]  # above it in the heap, whose end is free now
    for _ in range(3):
        await looks.get()
    held.clear()
    for _ in range(3):
        await looks.get()
    print(int(resident_bytes() - before) // 2**20)

memory._LOOK_S = 0.05
memory.keep_freed_memory()
asyncio.run(main())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="THE C LIBRARY IS NOT GLIBC: malloc_trim WAS NOT TRIED")
def test_memory_that_was_held_while_some_was_given_back_is_given_back_later() -> None:
    command = [sys.executable, "-c", _HOLD_AND_FREE]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert int(told.stdout) < 100


#: Calls models with few and then with many values in a row; tells by how many MB RSS has grown.
_CALL_AND_TELL = """
import threading
from app.core.machine_memory import resident_bytes
from app.server.memory import give_back, keep_freed_memory
keep_freed_memory()
import tensorflow as tf

table, kernel = tf.random.uniform([100, 64]), tf.random.uniform([3, 3, 3, 32])

@tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
def attention(tokens):
    x = tf.gather(table, tokens)
    return tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x)[:, 0]

@tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.float32)])
def images(pixels):
    return tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(pixels, kernel, 1, "SAME")), [1, 2])

def call(tokens, pixels):
    attention(tf.zeros([1, tokens], tf.int32))
    images(tf.zeros([1, pixels, pixels, 3]))

def called(*sizes):
    thread = threading.Thread(target=call, args=sizes)
    thread.start()
    thread.join()
    give_back()
    return resident_bytes()

before = called(16, 16)
print(int(called(8000, 1200) - before) // 1024**2)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="THE C LIBRARY IS NOT GLIBC: malloc_trim WAS NOT TRIED")
def test_the_memory_of_calls_with_large_rows_is_given_back() -> None:
    """The weights of the attention are 8000 x 8000 floats, 256 MB, of 32 KB of tokens; the image becomes 184 MB."""
    command = [sys.executable, "-c", _CALL_AND_TELL]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert int(told.stdout) < 100
