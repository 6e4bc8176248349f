import ml_dtypes
import numpy as np
import pytest

from app.core.inference import STRING, ModelSignature, TensorSpec, dtype_name, format_shape

FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize(
    ("shape", "given", "fits"),
    [
        (None, (), True),
        (None, (1, 2), True),
        ((), (), True),
        ((), (1,), False),
        ((None, 2), (0, 2), True),
        ((None, 2), (5, 3), False),
        ((None, None), (5,), False),
    ],
)
def test_shapes(shape: tuple[int | None, ...] | None, given: tuple[int, ...], fits: bool) -> None:
    assert TensorSpec("x", FLOAT, shape).accepts_shape(given) is fits


def test_names_are_tensorflows() -> None:
    assert dtype_name(STRING) == "string"
    assert dtype_name(np.dtype(ml_dtypes.bfloat16)) == "bfloat16"
    assert str(TensorSpec("x", FLOAT, (None, 8))) == "float32[?,8]"
    assert format_shape(None) == "<unknown rank>"


def signature(
    inputs: list[tuple[int | None, ...] | None], outputs: list[tuple[int | None, ...] | None]
) -> ModelSignature:
    def specs(shapes: list[tuple[int | None, ...] | None]) -> dict[str, TensorSpec]:
        return {str(index): TensorSpec(str(index), FLOAT, shape) for index, shape in enumerate(shapes)}

    return ModelSignature("s", specs(inputs), specs(outputs))


@pytest.mark.parametrize(
    ("inputs", "outputs", "batchable"),
    [
        ([(None, 2)], [(None,)], True),
        ([(None,), (None, 3)], [(None,), None], True),
        ([(None,)], [()], False),
        ([(4, 2)], [(None,)], False),
        ([()], [(None,)], False),
        ([None], [(None,)], False),
        ([(None,)], [(1,)], False),
        ([], [(None,)], False),
    ],
)
def test_rows_may_share_a_call_where_every_first_dimension_is_free(
    inputs: list[tuple[int | None, ...] | None], outputs: list[tuple[int | None, ...] | None], batchable: bool
) -> None:
    assert signature(inputs, outputs).batchable is batchable
