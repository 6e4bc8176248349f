"""SparseTensors that callers send: what the proof says of functions of one, and what calls say."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.batching.shapes.sparse import SparseRows
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import Array, SparseParts
from app.runtimes.tensorflow.row_proof.proof import prove_rows
from tests.support.models.sparse_models import (
    INDEPENDENT,
    LOOKUPS,
    MIXING,
    PARTS,
    UNSAFE_LOOKUPS,
    WIDTH,
    Function,
    called,
    drawn,
    spec,
)

ROWS = SparseRows({}, (PARTS,))
SIZES = ((1, 1), (1, 2), (2, 3), (3, 1), (7, 1), (1, 7))

NUMBERS = [(name, function, np.float32) for name, function in {**INDEPENDENT, **MIXING}.items()]
IDENTIFIERS = [(name, function, np.int64) for name, function in {**LOOKUPS, **UNSAFE_LOOKUPS}.items()]


def proven(function: Any, *specs: Any, sizes: Sequence[int | None] = (WIDTH,)) -> GraphRows:
    """The first of its arguments is sparse."""
    concrete = tf.function(function, input_signature=specs, autograph=False).get_concrete_function()
    names = [*PARTS, *[f"i{place}" for place in range(1, len(specs))]]
    return prove_rows(
        concrete.graph.as_graph_def(),
        {name: tensor.name for name, tensor in zip(names, concrete.inputs, strict=False)},
        {f"o{place}": tensor.name for place, tensor in enumerate(concrete.outputs)},
        {name: tensor.shape.as_list() for name, tensor in zip(names, concrete.inputs, strict=False)},
        sparse={PARTS: sizes},
    )


def verdict(function: Function, dtype: Any, width: int | None = WIDTH) -> OutputRows:
    return proven(function, spec(dtype, width), sizes=(width,)).outputs["o0"]


def answers(function: Function, requests: Sequence[Mapping[str, Array]]) -> tuple[Array, list[Array]]:
    rows = sum(int(each["x_2"][0]) for each in requests)
    return called(function, ROWS.join(requests, rows, rows)), [called(function, each) for each in requests]


def differs(function: Function, dtype: Any) -> bool:
    """Whether an answer has not a row for each row, or rows of requests that share a call differ from alone.

    A call that is rejected is no answer.
    """
    random = np.random.default_rng(1)
    for sizes in SIZES * 12:
        requests = [drawn(random, rows, dtype) for rows in sizes]
        try:
            together, apart = answers(function, requests)
        except tf.errors.OpError:
            continue
        if any(
            (len(each), *each.shape[1:]) != (rows, *together.shape[1:]) for rows, each in zip(sizes, apart, strict=True)
        ):
            return True
        joined = np.concatenate(apart)
        if joined.shape != together.shape or not np.allclose(joined, together, rtol=1e-4, atol=1e-6, equal_nan=True):
            return True
    return False


@pytest.mark.parametrize("width", [WIDTH, None])
@pytest.mark.parametrize(("name", "function", "dtype"), NUMBERS + IDENTIFIERS)
def test_what_is_proven_answers_each_row_as_alone(name: str, function: Function, dtype: Any, width: int | None) -> None:
    assert not (verdict(function, dtype, width).proven and differs(function, dtype))


@pytest.mark.parametrize("name", [*MIXING, *UNSAFE_LOOKUPS])
def test_functions_whose_rows_see_each_other_are_told_apart_by_calls(name: str) -> None:
    """The oracle of these tests can fail."""
    assert differs({**MIXING, **UNSAFE_LOOKUPS}[name], np.float32 if name in MIXING else np.int64)


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_of_numbers_are_proven(name: str) -> None:
    found = verdict(INDEPENDENT[name], np.float32)
    assert found.verdict == ("unknown" if name.startswith("no_rule") else "proven"), found.reason


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("width", [WIDTH, None])
def test_rows_of_looked_up_identifiers_are_proven(name: str, width: int | None) -> None:
    assert verdict(LOOKUPS[name], np.int64, width) == OutputRows("proven")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sum_of_all", "runs over all rows"),
        ("divided_by_largest", "Max"),
        ("number_of_rows", "computes with the number of rows"),
    ],
)
def test_what_mixes_rows_is_named(name: str, text: str) -> None:
    found = verdict(MIXING[name], np.float32)
    assert found.verdict == "mixes"
    assert text in found.reason


def test_a_width_that_nothing_declares_is_no_known_number() -> None:
    """Of a third of the width that the graph names three rows become one."""
    assert verdict(INDEPENDENT["reshaped"], np.float32, None).verdict == "unknown"
    assert len(called(INDEPENDENT["reshaped"], drawn(np.random.default_rng(2), 3, width=WIDTH // 3))) == 1


def test_the_parts_of_a_sparse_tensor_are_no_rows_as_outputs() -> None:
    found = proven(lambda x: (x.indices, x.values, x.dense_shape), spec(tf.float32))
    assert [each.verdict for each in found.outputs.values()] == ["no rows"] * 3


def test_rows_stand_beside_those_of_a_dense_input() -> None:
    found = proven(
        lambda x, scale: tf.sparse.reduce_sum(x, 1) * scale, spec(tf.float32), tf.TensorSpec([None], tf.float32)
    )
    assert found.proven
    assert found.row_inputs == {*PARTS, "i1"}
    assert not found.shared
    assert not found.unequal


def test_a_matrix_that_is_multiplied_has_other_rows() -> None:
    found = proven(tf.sparse.sparse_dense_matmul, spec(tf.float32), tf.TensorSpec([None, 4], tf.float32))
    assert not found.proven


# --- beside another sparse tensor z and rows d [rows, WIDTH] ---

OTHER = SparseParts("z", "z_1", "z_2")
BESIDE_ROWS = SparseRows({}, (PARTS, OTHER))


def by_row(x: Any, values: Any) -> Any:
    return tf.math.unsorted_segment_sum(values, x.indices[:, 0], x.dense_shape[0])


BESIDE: Mapping[str, Any] = {
    "both_dense": lambda x, z, d: tf.sparse.to_dense(x) + tf.sparse.to_dense(z) + d,
    "scaled_by_rows": lambda x, _, d: tf.sparse.to_dense(x * d),
    "times_its_own_row": lambda x, _, d: by_row(x, x.values * tf.gather(d[:, 0], x.indices[:, 0])),
    "times_its_column": lambda x, *_: by_row(x, x.values * tf.cast(x.indices[:, 1], tf.float32)),
    "times_a_weight_of_its_column": lambda x, *_: by_row(x, x.values * tf.gather(tf.range(6.0), x.indices[:, 1])),
}

BESIDE_MIXING: Mapping[str, Any] = {
    "times_another_row": lambda x, _, d: by_row(x, x.values * tf.gather(d[:, 0], x.indices[:, 1] % x.dense_shape[0])),
    "times_the_row_of_its_column": lambda x, _, d: by_row(x, x.values * tf.gather(d[:, 0], x.indices[:, 1])),
    "times_its_place": lambda x, *_: by_row(x, x.values * tf.cast(x.indices[:, 0], tf.float32)),
    "times_a_weight_of_its_place": lambda x, *_: by_row(x, x.values * tf.gather(tf.range(99.0), x.indices[:, 0])),
    "values_of_another": lambda x, z, _: by_row(x, z.values),
    "rows_of_another": lambda x, z, _: tf.math.unsorted_segment_sum(x.values, z.indices[:, 0], x.dense_shape[0]),
    "entries_by_column": lambda x, *_: tf.math.unsorted_segment_sum(x.values, x.indices[:, 1], x.dense_shape[0]),
    "first_entries": lambda x, *_: tf.sparse.to_dense(tf.sparse.retain(x, tf.range(tf.size(x.values)) < 2)),
    "scaled_by_the_sum_of_rows": lambda x, _, d: tf.sparse.to_dense(x * tf.reduce_sum(d, 0)),
    "scaled_by_the_first_row": lambda x, _, d: tf.sparse.to_dense(x * d[:1]),
    "turned_values": lambda x, *_: by_row(x, tf.reverse(x.values, [0])),
}


def beside_is_proven(function: Any) -> bool:
    """With z, another SparseTensor, and d."""
    concrete = tf.function(
        function, input_signature=[spec(), spec(), tf.TensorSpec([None, WIDTH])], autograph=False
    ).get_concrete_function()
    names = [*PARTS, *OTHER, "d"]
    return prove_rows(
        concrete.graph.as_graph_def(),
        {name: tensor.name for name, tensor in zip(names, concrete.inputs, strict=False)},
        {"y": concrete.outputs[0].name},
        {name: tensor.shape.as_list() for name, tensor in zip(names, concrete.inputs, strict=False)},
        sparse={PARTS: (WIDTH,), OTHER: (WIDTH,)},
    ).proven


def beside_differs(function: Any) -> bool:
    random = np.random.default_rng(1)

    def request(rows: int) -> dict[str, Array]:
        other = dict(zip(OTHER, drawn(random, rows).values(), strict=True))
        return {**drawn(random, rows), **other, "d": random.integers(1, 9, (rows, WIDTH)).astype(np.float32)}

    def answer(inputs: Mapping[str, Array]) -> Array:
        x, z = (tf.SparseTensor(*[inputs[name] for name in names]) for names in (PARTS, OTHER))
        found: Array = function(x, z, tf.constant(inputs["d"])).numpy()
        return found

    for sizes in SIZES * 6:
        requests = [request(rows) for rows in sizes]
        try:
            together = answer(BESIDE_ROWS.join(requests, sum(sizes), sum(sizes)))
            apart = np.concatenate([answer(each) for each in requests])
        except tf.errors.OpError:
            continue
        if together.shape != apart.shape or not np.allclose(together, apart, rtol=1e-5):
            return True
    return False


@pytest.mark.parametrize("name", BESIDE)
def test_what_stands_beside_its_own_rows_is_proven(name: str) -> None:
    assert beside_is_proven(BESIDE[name])
    assert not beside_differs(BESIDE[name])


@pytest.mark.parametrize("name", BESIDE_MIXING)
def test_what_stands_beside_others_is_not(name: str) -> None:
    assert not beside_is_proven(BESIDE_MIXING[name])
