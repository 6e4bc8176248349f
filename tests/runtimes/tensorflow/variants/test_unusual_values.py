"""Variants answer NaN, infinity, huge values and bounds of integers as the SavedModel does, whatever they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.agreement import agree, moved_inputs
from app.core.errors import ServingError
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.values.value_kinds import Reach
from app.runtime import VariantChoice, VariantOptions
from app.runtimes.tensorflow.error_mapping import map_error
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import VariantMaker
from app.runtimes.tensorflow.variants.unusual_values import Example, examples_of, place
from app.runtimes.tensorflow.variants.variant_search import VariantSearch

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)
SIZES = (1, 4, 32)

WEIGHTS = tf.constant(np.random.default_rng(1).standard_normal((6, 6)), tf.float32)
TABLE = tf.constant(np.random.default_rng(2).standard_normal((9, 4)), tf.float32)

FLOATS: Mapping[str, Callable[[Any], Any]] = {
    "maximum": lambda x: tf.reduce_max(x, 1),
    "minimum": lambda x: tf.reduce_min(x, 1),
    "top k": lambda x: tf.math.top_k(x, 3)[0],
    "place of the top": lambda x: tf.math.top_k(x, 3)[1],
    "place of the greatest": lambda x: tf.argmax(x, 1),
    "softmax": tf.nn.softmax,
    "sorted": lambda x: tf.sort(x, 1),
    "layer with relu": lambda x: tf.nn.relu(x @ WEIGHTS + 1.0),
    "classifier": lambda x: tf.nn.softmax(tf.nn.relu(x @ WEIGHTS) @ WEIGHTS),
    "norm": lambda x: x / tf.norm(x, axis=1, keepdims=True),
    "pool": lambda x: tf.nn.max_pool1d(x[:, :, None], 2, 2, "VALID"),
    "total": lambda x: tf.reduce_max(x)[None],
}

INTEGERS: Mapping[str, Callable[[Any], Any]] = {
    "embedding": lambda x: tf.gather(TABLE, x),
    "embedding of remainders": lambda x: tf.gather(TABLE, x % 9),
    "square": lambda x: x * x + 1,
    "ratio": lambda x: tf.cast(x, tf.float32) / 7.0,
    "quotient": lambda x: 100 // x,
    "shift": lambda x: tf.bitwise.left_shift(x, 3),
}


def function_of(body: Callable[[Any], Any], dtype: np.dtype[Any]) -> SignatureFunction:
    output = tf.function(body, autograph=False).get_concrete_function(tf.TensorSpec([None, 6], dtype))
    kind = np.dtype(output.output_dtypes.as_numpy_dtype)
    signature = ModelSignature(
        "s", {"x": TensorSpec("x", dtype, (None, 6))}, {"y": TensorSpec("y", kind, tuple(output.output_shapes))}
    )
    return SignatureFunction(signature, lambda x: {"y": output(x)})


def maker_of(function: SignatureFunction) -> VariantMaker:
    return VariantMaker(function.signature, function.plain)


def adopt(function: SignatureFunction, variant: str) -> list[VariantChoice]:
    search = VariantSearch({"s": function}, SIZES, VariantOptions(variant), lambda *_: None, make_maker=maker_of)
    return search.adopt([VariantChoice("s", size, variant, 1.0) for size in SIZES])


def answer(call: Callable[[Mapping[str, Array]], dict[str, Array]], inputs: Mapping[str, Array]) -> object:
    try:
        return call(inputs)
    except Exception as error:
        return map_error(error)


def moved(plain: Any, example: Example, values: Mapping[str, Array]) -> Any:
    """Numbers too small to be normal may count as zero. Nothing else is excused."""
    return plain(moved_inputs(values, np.random.default_rng(1))) if example.kind == "denormal" else None


def differing(function: SignatureFunction) -> list[str]:
    """The examples that the function answers differently from its plain graph, at each size, alone and mixed."""
    random, found = np.random.default_rng(5), []
    for size in SIZES:
        dtype = function.signature.inputs["x"].dtype
        inputs = {"x": np.asarray(random.integers(1, 4, (size, 6)), dtype)}
        plain = function.prepare(function.plain, inputs)
        examples = examples_of(function.signature, inputs)
        mixed = [[each, examples[0]] for each in examples] if size > 1 else []
        for batch in [[each] for each in examples] + mixed:
            values = place(batch, inputs, function.signature)
            want, got = answer(plain, values), answer(lambda values: function(values, ()), values)
            if isinstance(want, ServingError) or isinstance(got, ServingError):
                if str(want) != str(got):
                    found.append(f"{batch[0]} of {size}: {got}, not {want}")
            elif not agree(want, got, moved=moved(plain, batch[0], values)):  # type: ignore[arg-type]  # TensorFlow's own types
                found.append(f"{batch[0]} of {size}")
    return found


@pytest.mark.parametrize("variant", ["frozen", "inline", "xla"])
@pytest.mark.parametrize("body", FLOATS.values(), ids=FLOATS)
def test_floating_point_numbers_of_all_kinds_are_answered_as_by_plain(body: Callable[[Any], Any], variant: str) -> None:
    function = function_of(body, FLOAT32)
    adopt(function, variant)
    assert differing(function) == []


@pytest.mark.parametrize("variant", ["frozen", "inline", "xla"])
@pytest.mark.parametrize("body", INTEGERS.values(), ids=INTEGERS)
def test_whole_numbers_of_all_kinds_are_answered_or_rejected_as_by_plain(
    body: Callable[[Any], Any], variant: str
) -> None:
    function = function_of(body, INT32)
    adopt(function, variant)
    assert differing(function) == []


def test_without_a_guard_nan_is_answered_differently() -> None:
    """The tests above can fail: XLA's maximum of NaN is not TensorFlow's. (Its softmax is, on some processors.)"""
    function = function_of(FLOATS["maximum"], FLOAT32)
    search = VariantSearch({"s": function}, SIZES, VariantOptions("xla"), lambda *_: None, make_maker=maker_of)
    search.adopt([VariantChoice("s", size, "xla", 1.0, Reach.ANY) for size in SIZES])
    assert "NaN in x of 4" in differing(function)


def test_the_reach_is_how_far_a_variant_agrees() -> None:
    reaches = {name: {each.reach for each in adopt(function_of(FLOATS[name], FLOAT32), "xla")} for name in FLOATS}
    assert reaches["maximum"] == reaches["minimum"] == {Reach.FINITE}
    assert reaches["norm"] == {Reach.ANY}


def test_a_loop_that_an_input_counts_is_not_tried_with_the_greatest_number() -> None:
    def total(x: Any) -> Any:
        return tf.while_loop(
            lambda i, _: i < tf.reduce_max(x), lambda i, sums: (i + 1, sums + i), (0, tf.zeros_like(x))
        )[1]

    choices = adopt(function_of(total, INT32), "frozen")
    assert {(choice.variant, choice.reach) for choice in choices} == {("frozen", Reach.ORDINARY)}


def test_kinds_are_tried_in_all_inputs_together_and_in_each_alone() -> None:
    specs = {
        name: TensorSpec(name, np.dtype(kind), (None, 2)) for name, kind in (("a", "f4"), ("b", "f4"), ("n", "i4"))
    }
    signature = ModelSignature("s", specs | {"t": TensorSpec("t", STRING, (None,))}, {})
    inputs = {name: np.ones((2, 2), spec.dtype) for name, spec in specs.items()}
    examples = [str(each) for each in examples_of(signature, inputs | {"t": np.array([b"1", b"2"], STRING)}, {"n"})]
    assert {"NaN in a, b", "NaN in a", "NaN in b", "single infinity in b", "empty string in t"} <= set(examples)
    assert not any("n" in each.split(" in ")[1] for each in examples)
    assert "single empty string in t" not in examples


def test_a_hundred_inputs_do_not_make_a_thousand_examples() -> None:
    specs = {f"x{number}": TensorSpec(f"x{number}", FLOAT32, (None,)) for number in range(100)}
    inputs = {name: np.ones(2, np.float32) for name in specs}
    examples = examples_of(ModelSignature("s", specs, {}), inputs)
    assert len(examples) < 80
    assert len({name for each in examples[8:] for name in each.makers}) > 30
