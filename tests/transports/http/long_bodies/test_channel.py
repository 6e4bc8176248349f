"""What is sent arrives equal: arrays of all types, strings, views of bytes, everything else by pickle."""

from __future__ import annotations

import socket
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import STRING, string_array
from app.transports.http.long_bodies import channel
from app.transports.http.long_bodies.channel import Channel


def sent(content: object) -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sending = threading.Thread(target=Channel(ours).send, args=(content,))
        sending.start()
        received = Channel(theirs).receive()
        sending.join()
    return received


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_SLICE", 3)


@given(st.lists(st.binary(max_size=5), max_size=20))
def test_strings_arrive_equal(values: list[bytes]) -> None:
    array = sent({"x": string_array(values)})["x"]
    assert (array.dtype, array.shape, array.tolist()) == (STRING, (len(values),), values)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", ml_dtypes.bfloat16, ml_dtypes.int4])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (2, 0, 4), (200_000,)])
def test_arrays_arrive_equal(dtype: Any, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    got = sent((array, "beside it"))
    assert (got[0].dtype, got[0].shape, got[1]) == (array.dtype, shape, "beside it")
    assert got[0].tobytes() == array.tobytes()


def test_strings_keep_their_shape() -> None:
    array = string_array([b"a", b"", b"ccc", b"d"], (2, 2))
    assert sent(array).tolist() == [[b"a", b""], [b"ccc", b"d"]]


def test_views_of_bytes_arrive_as_views_that_nothing_changes() -> None:
    view = sent(memoryview(b"0123456789")[2:5])
    assert (bytes(view), view.readonly) == (b"234", True)


def test_an_end_that_is_gone_and_a_time_that_is_over_are_errors() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with pytest.raises(TimeoutError):
            Channel(ours, lambda: 0.001).receive()
        with pytest.raises(TimeoutError):
            Channel(ours, lambda: 0.0).send(b"")
        theirs.close()
        with pytest.raises(EOFError):
            Channel(ours).receive()
        with pytest.raises(BrokenPipeError):
            Channel(ours).send(b"")
