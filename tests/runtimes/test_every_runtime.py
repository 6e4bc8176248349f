"""What holds for every runtime of the registry, shown on real models.

They are made as SavedModels. For LiteRT they are converted by TensorFlow's converter; LEFT_OUT names what TFLite's
format cannot hold, and a test shows that this is so.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from app.core.errors import InferenceFailed, InvalidRequest, SignatureNotFound
from app.core.inference import STRING, Array
from app.core.time_budget import TimeBudget
from app.core.values.sample_inputs import zero_inputs
from app.loading.warm_up import tune, warm_up
from app.runtime import LoadedModel, PlainModel, Runtime, RuntimeOptions, VariantOptions, create_runtime, runtime_names
from app.runtimes.tensorflow import private_api, tensorflow_runtime
from app.runtimes.tensorflow.saved_model.session_model import SessionModel
from tests.runtimes import broken_savedmodels, broken_tflite
from tests.support import savedmodels
from tests.support.tflite import tflite_models
from tests.support.waiting import HANG_S

Load = Callable[[savedmodels.Make], LoadedModel]
DEFAULT = "serving_default"


#: 'public' is plain without TensorFlow's internals, 'session' executes every model as those of TensorFlow 1.
VARIANTS = {"tensorflow": ("plain", "frozen", "inline", "xla", "public", "session")}

#: How the models of `savedmodels` are written for a runtime.
WRITE: Mapping[str, Callable[[savedmodels.Make, Path], None]] = {
    "tensorflow": lambda make, path: make(path),
    "litert": tflite_models.make_tflite,
}

#: By runtime, the models that its format cannot hold, and what the converter says of them.
LEFT_OUT: Mapping[str, Mapping[savedmodels.Make, str]] = {
    "litert": {
        savedmodels.make_image_decoder: "DecodePng",
        savedmodels.make_tf1: "VarIsInitializedOp",
        savedmodels.make_unwanted_output: "StringLength",
    }
}

#: LiteRT may crash for shapes that its file does not allow, so that no call is made.
ONLY_ITS_SHAPES = {"litert"}

#: The model whose assertion the converter drops, so that LiteRT has nothing to reject.
WITHOUT_ASSERTION = {"litert": savedmodels.make_poison}

#: By runtime, folders that hold no model that it can load, and the reason.
BROKEN: Mapping[str, Mapping[savedmodels.Make, str]] = {
    "tensorflow": {
        broken_savedmodels.make_nothing: "there is no saved_model.pb",
        broken_savedmodels.make_empty_folder: "there is no saved_model.pb",
        broken_savedmodels.make_corrupted_graph: "Error parsing message",
        broken_savedmodels.make_empty_graph: "no graph tagged 'serve'; its graphs are tagged: none",
        savedmodels.make_training_graph: r"no graph tagged 'serve'; its graphs are tagged: \['train'\]",
        broken_savedmodels.make_without_variables: "variables",
        broken_savedmodels.make_half_copied_variables: "Read less bytes than requested",
    },
    "litert": {
        broken_tflite.make_nothing: "there is no model.tflite",
        broken_tflite.make_empty_folder: "there is no model.tflite",
        broken_tflite.make_empty_file: "model.tflite, of 0 bytes, is cut short or no TFLite model",
        broken_tflite.make_text: "model.tflite, of 20 bytes, is cut short or no TFLite model",
        broken_tflite.make_cut_short: "is cut short or no TFLite model",
        broken_tflite.make_without_graphs: "is cut short or no TFLite model",
        broken_tflite.make_flex: r"operations of TensorFlow that LiteRT does not have \(FlexStringLength\)",
        broken_tflite.make_custom: "a custom operation that LiteRT does not have: Erfinv",
        broken_tflite.make_crashing: r"LiteRT crashes with this file \(SIG\w+\) while it",
    },
}


@pytest.fixture(
    scope="module",
    params=[(name, variant) for name in runtime_names() for variant in VARIANTS.get(name, ("plain",))],
    ids="-".join,
)
def made(request: pytest.FixtureRequest) -> Iterator[tuple[str, Runtime]]:
    """Every runtime, by its name, in every form in which it executes models: all of them answer and reject alike."""
    name, variant = request.param
    with pytest.MonkeyPatch.context() as patch:
        if variant == "public":
            patch.setattr(private_api, "works", lambda feature: False)
            variant = "plain"
        if variant == "session":
            patch.setattr(tensorflow_runtime, "why_session", lambda meta_graph: "the test says so")
            variant = "plain"
        yield name, create_runtime(name, RuntimeOptions(variants=VariantOptions(variant)))


@pytest.fixture(scope="module")
def name(made: tuple[str, Runtime]) -> str:
    return made[0]


@pytest.fixture(scope="module")
def runtime(made: tuple[str, Runtime]) -> Runtime:
    return made[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every form loads the same models."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def load(name: str, runtime: Runtime, folder: Path) -> Load:
    """Loads the model that a `savedmodels.make_...` makes, each once: models that a test closes are its own."""
    loaded: dict[str, LoadedModel] = {}

    def load_once(make: savedmodels.Make) -> LoadedModel:
        if make in LEFT_OUT.get(name, {}):
            pytest.skip(f"{name} has no {LEFT_OUT[name][make]}")
        model = make.__name__.removeprefix("make_")
        if model not in loaded:
            path = folder / name / model / "1"
            if not path.exists():
                WRITE[name](make, path)
            loaded[model] = runtime.load(path)
            tune(loaded[model], (1, 2, 3), lambda *_: None, TimeBudget(inf))
        return loaded[model]

    return load_once


def float32(*values: object) -> Array:
    return np.array(values, np.float32)


def strings(*values: bytes) -> Array:
    return np.array(values, STRING)


def test_it_names_its_devices(runtime: Runtime) -> None:
    assert runtime.devices
    assert all(device.split(":")[0] in {"CPU", "GPU"} for device in runtime.devices)


def test_a_call_returns_all_outputs(load: Load) -> None:
    model = load(savedmodels.make_several_inputs)
    answer = model.run(DEFAULT, {"b": float32([3, 4]), "a": float32([1, 2])}, ())
    assert {name: array.tolist() for name, array in answer.items()} == {"sum": [[4, 6]], "product": [[3, 8]]}


def test_a_call_returns_the_outputs_wanted_in_their_order(load: Load) -> None:
    model = load(savedmodels.make_many_outputs)
    answer = model.run(DEFAULT, {"x": float32(1)}, ("y5", "y0"))
    assert list(answer) == ["y5", "y0"]
    assert [array.tolist() for array in answer.values()] == [[6], [1]]


def test_every_dtype_comes_back_as_it_went_in(load: Load) -> None:
    model = load(savedmodels.make_every_dtype)
    signature = model.signatures[DEFAULT]
    inputs = {name: np.array([0, 1, 1], spec.dtype) for name, spec in signature.inputs.items()}
    inputs["string"] = strings(b"", b"\x00\xff", "käse".encode())
    answer = model.run(DEFAULT, inputs, ())
    assert len(answer) == len(savedmodels.DTYPES)
    for name, values in inputs.items():
        output = answer[f"{name}_out"]
        assert output.dtype == values.dtype == signature.outputs[f"{name}_out"].dtype
        assert output.tolist() == values.tolist()


def test_scalars_are_arrays_without_dimensions(load: Load) -> None:
    model = load(savedmodels.make_scalars)
    for name in (b"Ann", b"", b"\x00\xff\x00"):
        answer = model.run(DEFAULT, {"a": np.array(4, np.float32), "name": np.array(name, STRING)}, ())
        assert {type(array) for array in answer.values()} == {np.ndarray}
        assert [answer[output].shape for output in ("double", "same")] == [(), ()]
        assert [answer[output].item() for output in ("double", "same")] == [8, name]
        assert answer["same"].dtype == STRING
    assert not model.signatures[DEFAULT].batchable


def test_a_signature_without_inputs_runs(load: Load) -> None:
    assert load(savedmodels.make_no_inputs).run(DEFAULT, {}, ())["seven"].item() == 7


def test_an_empty_batch_has_empty_answers(load: Load) -> None:
    model = load(savedmodels.make_every_dtype)
    inputs = {name: np.zeros([0], spec.dtype) for name, spec in model.signatures[DEFAULT].inputs.items()}
    assert {array.shape for array in model.run(DEFAULT, inputs, ()).values()} == {(0,)}


@pytest.mark.parametrize("shape", [(1, 2, 3), (4, 1, 5), (0, 3, 3)])
def test_unknown_dimensions_take_any_size(load: Load, shape: tuple[int, ...]) -> None:
    answer = load(savedmodels.make_unknown_inner).run(DEFAULT, {"matrix": np.ones(shape, np.float32)}, ())
    assert answer["total"].tolist() == [shape[1] * shape[2]] * shape[0]
    assert answer["doubled"].shape == shape


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 2)])
def test_an_unknown_rank_takes_any_shape(load: Load, shape: tuple[int, ...]) -> None:
    model = load(savedmodels.make_unknown_rank)
    assert model.signatures[DEFAULT].inputs["x"].shape is None
    assert model.run(DEFAULT, {"x": np.zeros(shape, np.float32)}, ())["y"].shape == shape


def test_each_signature_is_its_own_function(load: Load) -> None:
    model = load(savedmodels.make_signatures_of_numbers)
    assert set(model.signatures) == {"serving_default", "double", "total"}
    assert {name for name, signature in model.signatures.items() if signature.batchable} == {"double", DEFAULT}
    assert model.run(DEFAULT, {"x": float32(5)}, ())["y"].tolist() == [6]
    assert model.run("double", {"x": float32(5)}, ())["y"].tolist() == [10]
    assert model.run("total", {"numbers": float32(5, 6)}, ())["sum"].item() == 11


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ({"a": float32([1, 2])}, (), "inputs must be 'a', 'b', not 'a'"),
        ({"a": float32([1, 2]), "c": float32([1, 2])}, (), "inputs must be 'a', 'b', not 'a', 'c'"),
        ({"a": float32([1, 2]), "b": float32([1, 2])}, ("sun",), "outputs must be among 'product', 'sum', not 'sun'"),
    ],
)
def test_wrong_names_are_rejected(load: Load, inputs: dict[str, Array], outputs: tuple[str, ...], text: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        load(savedmodels.make_several_inputs).run(DEFAULT, inputs, outputs)
    assert str(error.value) == text


def test_an_unknown_signature_is_rejected(load: Load) -> None:
    with pytest.raises(SignatureNotFound, match="'nope' not found; there are 'serving_default'"):
        load(savedmodels.make_scalars).run("nope", {}, ())


def test_a_shape_beyond_the_signature_is_the_graphs_to_judge(name: str, load: Load) -> None:
    """As in TensorFlow Serving; whether such a request gets this far is `strict_shapes`'."""
    inputs = {"a": float32(1, 2), "b": float32([1, 2], [3, 4], [5, 6])}
    if name in ONLY_ITS_SHAPES:
        with pytest.raises(InvalidRequest, match=r"input 'a' has shape \[2\]; expected float32\[\?,2\]"):
            load(savedmodels.make_several_inputs).run(DEFAULT, inputs, ("sum",))
        return
    outputs = load(savedmodels.make_several_inputs).run(DEFAULT, inputs, ("sum",))
    assert outputs["sum"].tolist() == [[2, 4], [4, 6], [6, 8]]


@pytest.mark.parametrize("rows", [float32([1, 2, 3]), strings(b"a"), float32([1, 2], [3, 4])])
def test_arrays_that_do_not_fit_are_rejected(load: Load, rows: Array) -> None:
    inputs = {"a": rows, "b": float32([1, 2], [3, 4], [5, 6])}
    with pytest.raises(InvalidRequest):
        load(savedmodels.make_several_inputs).run(DEFAULT, inputs, ())


def test_a_value_that_the_model_rejects_is_the_callers_fault_and_spoils_nothing(name: str, load: Load) -> None:
    model = load(savedmodels.make_poison)
    if WITHOUT_ASSERTION.get(name):  # tests/runtimes/litert has values that LiteRT rejects
        assert model.run(DEFAULT, {"x": float32(1, -1)}, ())["y"].tolist() == [2, -2]
        return
    with pytest.raises(InvalidRequest, match=r"^assertion failed: \[x must not be negative") as error:
        model.run(DEFAULT, {"x": float32(1, -1)}, ())
    assert "node" not in str(error.value)
    assert "Op:" not in str(error.value)
    assert model.run(DEFAULT, {"x": float32(1)}, ())["y"].tolist() == [2]


def test_an_unwanted_output_is_not_computed(load: Load) -> None:
    model = load(savedmodels.make_unwanted_output)
    if isinstance(
        model, SessionModel
    ):  # to a session, a function of TensorFlow 2 is one node; see test_session_model.py
        return
    inputs = {"text": strings(b"four")}
    with pytest.raises(InvalidRequest, match="could not correctly convert string: four"):
        model.run(DEFAULT, inputs, ())
    with pytest.raises(InvalidRequest, match="could not correctly convert string: four"):
        model.run(DEFAULT, inputs, ("number",))
    assert model.run(DEFAULT, inputs, ("length",))["length"].tolist() == [4]


def test_any_number_of_output_sets_is_answered(load: Load) -> None:
    model = load(savedmodels.make_many_outputs)
    for choice in range(1, 64):
        wanted = tuple(f"y{bit}" for bit in range(6) if choice >> bit & 1)
        answer = model.run(DEFAULT, {"x": float32(choice)}, wanted)
        assert {name: array.item() for name, array in answer.items()} == {
            name: choice + int(name[1:]) for name in wanted
        }


def test_answers_do_not_change_when_the_model_runs_again(load: Load) -> None:
    model = load(savedmodels.make_counter)
    answers = [model.run(DEFAULT, {"x": float32(0, 0)}, ("calls",))["calls"] for _ in range(3)]
    first = int(answers[0][0])
    assert [answer.tolist() for answer in answers] == [[first] * 2, [first + 1] * 2, [first + 2] * 2]


def test_calls_that_write_take_turns(load: Load) -> None:
    """A counter is written and then read: of two calls at a time both would read the second number."""
    model = load(savedmodels.make_counter)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: model.run(DEFAULT, {"x": float32(0)}, ())["calls"], range(400)))
    assert len({int(calls[0]) for calls in answers}) == 400


def test_answers_do_not_share_memory_with_the_request(load: Load) -> None:
    x = float32(*range(100))
    answer = load(savedmodels.make_counter).run(DEFAULT, {"x": x}, ())
    x[:] = -1
    assert answer["y"].tolist() == list(range(100))


def test_threads_get_their_own_answers(load: Load) -> None:
    model = load(savedmodels.make_many_outputs)
    threads, together = 4, Barrier(4)

    def calls(thread: int) -> None:
        together.wait(timeout=HANG_S)
        for turn in range(50):
            wanted = f"y{turn % 6}"
            answer = model.run(DEFAULT, {"x": float32(*[100 * thread + turn] * thread, 7)}, (wanted,))
            assert answer[wanted].tolist() == [100 * thread + turn + turn % 6] * thread + [7 + turn % 6]

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(calls, thread) for thread in range(threads)]:
            done.result()


def test_a_row_in_a_batch_equals_the_row_alone(load: Load) -> None:
    model = load(savedmodels.make_image_net)
    images = np.random.default_rng(1).random([64, 8, 8], np.float32)
    alone = [model.run(DEFAULT, {"image": image[np.newaxis]}, ())["probabilities"][0] for image in images]
    for rows in (2, 7, 64):
        together = model.run(DEFAULT, {"image": images[:rows]}, ())["probabilities"]
        np.testing.assert_allclose(together, alone[:rows], rtol=1e-5, atol=1e-6)
    assert np.ptp([row[0] for row in alone]) > 1e-3, "rows that are all alike would prove nothing"


def test_padding_with_a_repeated_row_changes_no_real_row(load: Load) -> None:
    model = load(savedmodels.make_image_net)
    images = np.random.default_rng(2).random([5, 8, 8], np.float32)
    padded = np.concatenate([images, np.repeat(images[-1:], 3, axis=0)])
    real = model.run(DEFAULT, {"image": images}, ())["probabilities"]
    with_padding = model.run(DEFAULT, {"image": padded}, ())["probabilities"]
    np.testing.assert_allclose(with_padding[:5], real, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        savedmodels.make_every_dtype,
        savedmodels.make_half_plus_two,
        savedmodels.make_image_decoder,
        savedmodels.make_scalars,
        savedmodels.make_signatures_of_numbers,
        savedmodels.make_slow,
        savedmodels.make_tf1,
        savedmodels.make_unknown_inner,
        savedmodels.make_unknown_rank,
    ],
    ids=lambda make: make.__name__,
)
def test_warm_up_makes_inputs_that_each_signature_runs_or_rejects(load: Load, make: savedmodels.Make) -> None:
    model = load(make)
    reports: list[tuple[int, int]] = []
    warm_up(model, [1, 2], lambda done, total, _: reports.append((done, total)))
    called = [signature for signature in model.signatures.values() if not signature.writes]
    done, totals = zip(*reports, strict=True) if called else ((), ())
    assert list(done) == sorted(set(done))
    assert set(totals) <= {sum(2 if signature.batchable else 1 for signature in called)}


def test_batches_of_example_inputs_have_their_rows(load: Load) -> None:
    model = load(savedmodels.make_image_net)
    inputs = zero_inputs(model.signatures[DEFAULT], 3)
    assert len(model.run(DEFAULT, inputs, ())["probabilities"]) == 3


def test_a_closed_model_runs_no_more(name: str, runtime: Runtime, tmp_path: Path) -> None:
    WRITE[name](savedmodels.make_unknown_rank, tmp_path / "gone" / "1")
    model = runtime.load(tmp_path / "gone" / "1")
    model.close()
    with pytest.raises(InferenceFailed, match="closed"):
        model.run(DEFAULT, {"x": float32(1)}, ())
    model.close()


def test_two_versions_live_side_by_side_and_one_closes_alone(name: str, runtime: Runtime, tmp_path: Path) -> None:
    WRITE[name](savedmodels.make_unknown_rank, tmp_path / "m" / "1")
    WRITE[name](savedmodels.make_poison, tmp_path / "m" / "2")
    old, new = runtime.load(tmp_path / "m" / "1"), runtime.load(tmp_path / "m" / "2")
    assert old.run(DEFAULT, {"x": float32(3)}, ())["y"].tolist() == [4]
    old.close()
    assert new.run(DEFAULT, {"x": float32(3)}, ())["y"].tolist() == [6]


def test_a_folder_that_cannot_be_loaded_says_why(name: str, runtime: Runtime, tmp_path: Path) -> None:
    for make, reason in BROKEN[name].items():
        folder = tmp_path / make.__name__
        make(folder / "rubbish" / "3")
        with pytest.raises(InferenceFailed, match=rf"^rubbish/3 cannot be loaded: .*{reason}") as error:
            runtime.load(folder / "rubbish" / "3")
        assert "\n" not in str(error.value), make
        assert str(folder) not in str(error.value), make


@pytest.mark.parametrize(
    ("make", "reason"), LEFT_OUT["litert"].items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_what_is_left_out_cannot_be_converted(make: savedmodels.Make, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        tflite_models.converted(make)


def test_a_model_is_executed_as_saved_beside_its_variants(load: Load) -> None:
    model = load(savedmodels.make_image_net)
    assert isinstance(model, PlainModel)
    image = {"image": np.ones((2, 8, 8), np.float32)}
    want = model.run_plain(DEFAULT, image, ())
    np.testing.assert_allclose(model.run(DEFAULT, image, ())["probabilities"], want["probabilities"], rtol=1e-4)
    model.stop_variants(DEFAULT)
    np.testing.assert_array_equal(model.run(DEFAULT, image, ("probabilities",))["probabilities"], want["probabilities"])
