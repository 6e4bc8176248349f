"""SavedModels that reject made-up values: the probe of rows finds values that they accept, and proves by them.

Of each kind of input there are two models: rows of one see each other, by a softmax or a difference to the mean over
all rows, and those of its twin do not.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.time_budget import TimeBudget
from app.core.values.sample_inputs import zero_inputs
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.row_probe import ProbedRows, probe_rows
from app.loading.values.accepted_rows import accepted_inputs, accepted_row
from app.loading.warm_up import measure_calls, warm_up
from app.runtime import LoadedModel, Runtime, RuntimeOptions, create_runtime

SIZES = BatchSizes.powers_of_two(16)
TEXT = tf.TensorSpec([None], tf.string, name="x")
IDS = tf.TensorSpec([None], tf.int32, name="x")

Features = Callable[[Any, Any], Any]

#: By kind of input: its signature, and a number or a vector for each row.
KINDS: dict[str, tuple[tf.TensorSpec, Features]] = {}


def kind(spec: tf.TensorSpec) -> Callable[[Features], Features]:
    def add(features: Features) -> Features:
        KINDS[features.__name__] = spec, features
        return features

    return add


def each(function: Callable[[Any], Any], texts: Any) -> Any:
    return tf.map_fn(function, texts, fn_output_signature=tf.float32)


@kind(TEXT)
def an_example(_: Any, x: Any) -> Any:
    spec = {"x": tf.io.FixedLenFeature([], tf.float32), "optional": tf.io.FixedLenFeature([2], tf.int64, [1, 2])}
    return tf.io.parse_example(x, spec)["x"]


@kind(TEXT)
def examples_with_sparse_and_ragged_features(_: Any, x: Any) -> Any:
    spec = {
        "words": tf.io.VarLenFeature(tf.string),
        "ids": tf.io.RaggedFeature(tf.int64),
        "x": tf.io.FixedLenFeature([3], tf.float32),
    }
    parsed = tf.io.parse_example(x, spec)
    words = parsed["words"]
    letters = tf.SparseTensor(words.indices, tf.strings.length(words.values), words.dense_shape)
    number_of_letters = tf.sparse.reduce_sum(letters, 1)
    lengths = tf.cast(number_of_letters, tf.float32) + tf.cast(tf.reduce_sum(parsed["ids"], 1), tf.float32)
    return tf.reduce_sum(parsed["x"], 1) + lengths


@kind(TEXT)
def one_example_at_a_time(_: Any, x: Any) -> Any:
    return each(lambda one: tf.io.parse_single_example(one, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"], x)


@kind(TEXT)
def an_example_with_an_image(_: Any, x: Any) -> Any:
    images = tf.io.parse_example(x, {"image": tf.io.FixedLenFeature([], tf.string)})["image"]
    return each(lambda one: brightness(tf.io.decode_jpeg(one, channels=3)), images)


@kind(TEXT)
def a_sequence(_: Any, x: Any) -> Any:
    context, lists, _lengths = tf.io.parse_sequence_example(
        x,
        {"c": tf.io.FixedLenFeature([], tf.float32)},
        {"steps": tf.io.FixedLenSequenceFeature([], tf.float32)},
    )
    return context["c"] + tf.reduce_sum(lists["steps"], 1)


def brightness(image: Any) -> Any:
    return tf.reduce_mean(tf.cast(image, tf.float32))


@kind(TEXT)
def a_jpeg_of_a_fixed_size(_: Any, x: Any) -> Any:
    return each(lambda one: brightness(tf.ensure_shape(tf.io.decode_jpeg(one, channels=3), [20, 24, 3])), x)


@kind(TEXT)
def a_png_that_is_resized(_: Any, x: Any) -> Any:
    return each(lambda one: brightness(tf.image.resize(tf.io.decode_png(one, channels=1), [8, 8])), x)


@kind(TEXT)
def a_bmp(_: Any, x: Any) -> Any:
    return each(lambda one: brightness(tf.io.decode_bmp(one)), x)


@kind(TEXT)
def a_gif(_: Any, x: Any) -> Any:
    return each(lambda one: brightness(tf.io.decode_gif(one)), x)


@kind(TEXT)
def any_image_in_base64(_: Any, x: Any) -> Any:
    decoded = tf.io.decode_base64(x)
    return each(lambda one: brightness(tf.io.decode_image(one, channels=3, expand_animations=False)), decoded)


@kind(TEXT)
def a_sound(_: Any, x: Any) -> Any:
    return each(lambda one: tf.reduce_sum(tf.audio.decode_wav(one, 1, 400).audio), x)


@kind(TEXT)
def raw_bytes(_: Any, x: Any) -> Any:
    return each(lambda one: brightness(tf.ensure_shape(tf.io.decode_raw(one, tf.uint8), [12])), x)


@kind(TEXT)
def a_serialized_tensor(_: Any, x: Any) -> Any:
    return each(lambda one: tf.reduce_sum(tf.ensure_shape(tf.io.parse_tensor(one, tf.float32), [3])), x)


@kind(TEXT)
def a_line_of_columns(_: Any, x: Any) -> Any:
    columns = tf.io.decode_csv(x, [[0.0], tf.constant([], tf.float32), ["a"]])
    return columns[0] + columns[1]


@kind(TEXT)
def a_number(_: Any, x: Any) -> Any:
    return tf.strings.to_number(x)


@kind(TEXT)
def a_date_in_parts(_: Any, x: Any) -> Any:
    parts = tf.strings.to_number(tf.strings.split(x, "-").to_tensor(shape=[None, 3]), tf.int32)
    days = tf.gather(tf.range(13) * 30, parts[:, 1])
    return tf.cast(days + parts[:, 2], tf.float32)


@kind(TEXT)
def a_date_by_its_form(_: Any, x: Any) -> Any:
    tf.debugging.Assert(tf.reduce_all(tf.strings.regex_full_match(x, r"\d{4}-\d{2}-\d{2}")), [x])
    month = tf.strings.to_number(tf.strings.substr(x, 5, 2), tf.int32)
    return tf.cast(tf.gather(tf.range(13) * 30, month), tf.float32)


@kind(TEXT)
def a_code_by_its_form(_: Any, x: Any) -> Any:
    tf.debugging.Assert(tf.reduce_all(tf.strings.regex_full_match(x, r"[A-Z]{2}-\d{3}")), [x])
    return tf.cast(tf.strings.to_hash_bucket_fast(x, 1000), tf.float32)


@kind(TEXT)
def an_entry_of_a_table(module: Any, x: Any) -> Any:
    found = module.table.lookup(x)
    tf.debugging.assert_non_negative(found)
    return tf.cast(found, tf.float32)


@kind(TEXT)
def an_entry_whose_embedding_is_gathered(module: Any, x: Any) -> Any:
    return tf.reduce_sum(tf.gather(module.embeddings, module.table.lookup(x)), 1)


@kind(IDS)
def asserted_ids(_: Any, x: Any) -> Any:
    tf.debugging.assert_less(x, 1040)
    tf.debugging.assert_greater_equal(x, 1000)
    return tf.cast(x, tf.float32)


@kind(IDS)
def ids_of_an_embedding_that_begin_at_a_hundred(module: Any, x: Any) -> Any:
    return tf.reduce_sum(tf.gather(module.embeddings, x - 100), 1)


@kind(tf.TensorSpec([None, None], tf.float32, name="x"))
def shares_of_an_asserted_number(_: Any, x: Any) -> Any:
    tf.debugging.assert_equal(tf.shape(x)[1], 5)
    tf.debugging.assert_near(tf.reduce_sum(x, 1), 1.0, atol=1e-3)
    tf.debugging.assert_non_negative(x)
    return tf.reduce_max(x, 1)


@kind(tf.TensorSpec([None], tf.float32, name="x"))
def degrees_between_bounds(_: Any, x: Any) -> Any:
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all((x * 2.0 > 60.0) & (x * 2.0 < 64.0)), [x])]):
        return tf.identity(x)


def save(path: Path, name: str, over_rows: Callable[[Any], Any]) -> None:
    spec, features = KINDS[name]
    module = tf.Module()
    keys = tf.constant(["red", "green", "blue", "white"])
    pairs = tf.lookup.KeyValueTensorInitializer(keys, tf.range(4, dtype=tf.int64))
    module.table = tf.lookup.StaticHashTable(pairs, -1)
    module.embeddings = tf.Variable(np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32))
    module.serve = tf.function(lambda x: {"y": over_rows(features(module, x))}, input_signature=[spec])
    tf.saved_model.save(module, path, signatures=module.serve)


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return create_runtime("tensorflow", RuntimeOptions())


@pytest.fixture
def load(runtime: Runtime, tmp_path: Path) -> Iterator[Callable[..., LoadedModel]]:
    loaded: list[LoadedModel] = []

    def load(name: str, over_rows: Callable[[Any], Any]) -> LoadedModel:
        path = tmp_path / str(len(loaded))
        save(path, name, over_rows)
        loaded.append(runtime.load(path))
        return loaded[-1]

    yield load
    for model in loaded:
        model.close()


def probe(model: LoadedModel) -> ProbedRows:
    return probe_rows(BudgetedModel(model, TimeBudget(60.0)), model.signatures["serving_default"], SIZES)


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_proven_independent_with_values_that_the_graph_accepts(
    name: str, load: Callable[..., LoadedModel]
) -> None:
    found = probe(load(name, lambda features: 2.0 * features + 1.0))
    assert found == ProbedRows({}, frozenset({"y"}), SIZES.largest)


@pytest.mark.parametrize("name", KINDS)
def test_rows_that_see_each_other_are_found_with_such_values(name: str, load: Callable[..., LoadedModel]) -> None:
    assert set(probe(load(name, lambda features: features - tf.reduce_mean(features))).dependent) == {"y"}


@pytest.mark.parametrize("name", KINDS)
def test_a_signature_that_rejects_zeros_is_warmed_up_with_a_row_that_it_accepts(
    name: str, load: Callable[..., LoadedModel], caplog: pytest.LogCaptureFixture
) -> None:
    model = load(name, lambda features: features)
    signature = model.signatures["serving_default"]
    with pytest.raises(InvalidRequest):
        model.run(signature.name, zero_inputs(signature, 1), ())
    assert warm_up(model, [1, 4], lambda *_: None) == [1, 4]
    assert "is not warmed up" not in caplog.text
    inputs = accepted_inputs(model, signature, 4)
    assert len(model.run(signature.name, inputs, ())["y"]) == 4
    if signature.fixed_inner_shapes:
        assert measure_calls(model, {signature.name: signature}, [1, 4]).keys() == {signature.name}


def images_as_high_as_the_highest(x: Any) -> Any:
    """Those of other heights get black rows, which change their brightness."""
    images = tf.map_fn(
        lambda one: tf.RaggedTensor.from_tensor(tf.cast(tf.io.decode_png(one, channels=1)[:, :, 0], tf.float32)),
        x,
        fn_output_signature=tf.RaggedTensorSpec([None, None], tf.float32, ragged_rank=1),
    )
    return tf.reduce_mean(images.to_tensor(), [1, 2])


def optional_features(x: Any) -> Any:
    """A mean over the rows takes the place of what is not there, which is -1."""
    optional = tf.io.parse_example(x, {"x": tf.io.FixedLenFeature([], tf.float32, -1.0)})["x"]
    return tf.where(optional == -1.0, tf.reduce_mean(optional), optional)


@pytest.mark.parametrize("mixed", [images_as_high_as_the_highest, optional_features])
def test_rows_that_see_each_other_if_their_forms_differ_are_found(
    mixed: Callable[[Any], Any], load: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "mixed", (TEXT, lambda _, x: mixed(x)))
    assert set(probe(load("mixed", lambda features: features)).dependent) == {"y"}


def test_a_signature_that_accepts_zeros_is_called_with_zeros_and_without_a_trial(
    load: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = tf.TensorSpec([None, 3], tf.float32, name="x")
    monkeypatch.setitem(KINDS, "anything", (numbers, lambda _, x: tf.reduce_sum(x, 1)))
    model = load("anything", lambda features: features)
    assert accepted_row(model, model.signatures["serving_default"]) is None
