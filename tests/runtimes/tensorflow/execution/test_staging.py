import ml_dtypes
import numpy as np
import pytest

from app.core.inference import STRING
from app.runtimes.tensorflow.execution.staging import Staging, aligned_array, can_share

FLOAT32 = np.dtype(np.float32)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16, np.float32, np.complex128])
@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (5, 7)])
def test_arrays_lie_where_kernels_take_them(dtype: type, shape: tuple[int, ...]) -> None:
    array = aligned_array(shape, np.dtype(dtype))
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.ctypes.data % 64 == 0
    array[...] = 1


def test_what_numpy_and_tensorflow_exchange() -> None:
    for dtype in (np.bool_, np.int8, np.uint64, np.float16, np.float64, np.complex64):
        assert can_share(np.dtype(dtype))
    for other in (STRING, np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)):
        assert not can_share(other)


def test_tensors_have_the_values_of_the_last_filling() -> None:
    staging = Staging([("a", FLOAT32, (2,)), ("s", STRING, (1,)), ("b", np.dtype(np.int32), ())])
    for number in (1, 2):
        tensors = staging.fill({
            "s": np.array([b"%d" % number], STRING), "b": np.array(number), "a": np.full(2, number, np.float32)
        })  # fmt: skip
        assert [tensor.numpy().tolist() for tensor in tensors] == [[number] * 2, [b"%d" % number], number]


def test_numbers_that_are_shared_are_no_new_tensors() -> None:
    staging = Staging([("a", FLOAT32, (2,))])
    (first,) = staging.fill({"a": np.zeros(2, np.float32)})
    (second,) = staging.fill({"a": np.ones(2, np.float32)})
    assert first is second


def test_any_layout_in_memory_is_taken() -> None:
    staging = Staging([("a", FLOAT32, (2, 3))])
    columns = np.arange(6, dtype=np.float32).reshape(3, 2).T
    read_only = np.frombuffer(bytes(4 * 6), np.float32).reshape(2, 3)
    for array in (columns, read_only):
        assert staging.fill({"a": array})[0].numpy().tolist() == array.tolist()


def test_no_text_passes_for_a_number() -> None:
    with pytest.raises(TypeError):
        Staging([("a", FLOAT32, (1,))]).fill({"a": np.array([b"1"], STRING)})
