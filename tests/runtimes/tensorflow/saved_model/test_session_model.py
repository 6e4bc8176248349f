"""Models of TensorFlow 1 with references, loaded as the runtime loads them, run in a session of their own."""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto

from app.core.errors import InferenceFailed, InvalidRequest, ServingError, SignatureNotFound
from app.core.inference import STRING, Array
from app.repository.disk.local_copies import keep_assets
from app.runtime import LoadedModel, PlainModel, Runtime, RuntimeOptions, create_runtime, note_of
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.saved_model.session_model import SessionModel
from tests.support import savedmodels, tf1_savedmodels
from tests.support.garbage import alive, no_collection

Load = Callable[[savedmodels.Make], LoadedModel]


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return create_runtime("tensorflow", RuntimeOptions())


@pytest.fixture
def load(runtime: Runtime, tmp_path: Path) -> Iterator[Load]:
    loaded: list[LoadedModel] = []

    def load(make: savedmodels.Make) -> LoadedModel:
        path = tmp_path / str(len(loaded)) / "1"
        make(path)
        loaded.append(runtime.load(path))
        return loaded[-1]

    yield load
    for model in loaded:
        model.close()


def float32(*values: object) -> Array:
    return np.array(values, np.float32)


def output(model: LoadedModel, signature: str, **inputs: Array) -> float:
    return float(model.run(signature, inputs, ())["output"])


def test_a_counter_counts_each_call_once_and_its_signatures_share_it(load: Load) -> None:
    model = load(tf1_savedmodels.make_counter)
    assert output(model, "get_counter") == 0
    assert [output(model, "incr_counter") for _ in range(3)] == [1, 2, 3]
    assert output(model, "incr_counter_by", delta=np.array(2.5, np.float32)) == 5.5
    assert output(model, "get_counter") == 5.5
    assert output(model, "reset_counter") == 0
    assert output(model, "get_counter") == 0


def test_signatures_that_write_are_known(load: Load) -> None:
    signatures = load(tf1_savedmodels.make_counter).signatures
    writes = {name: signature.writes for name, signature in signatures.items()}
    assert writes.pop("get_counter") == ()
    assert writes == {"incr_counter": ("AssignAdd",), "incr_counter_by": ("AssignAdd",), "reset_counter": ("Assign",)}
    assert not any(signature.batchable for signature in signatures.values())
    reading = load(tf1_savedmodels.make_half_plus_three).signatures["serving_default"]
    assert (reading.writes, reading.batchable, reading.reads_files, reading.loops) == ((), True, False, False)


def test_no_count_is_lost_between_two_signatures_that_write_the_same(load: Load) -> None:
    model = load(tf1_savedmodels.make_counter)
    one = np.array(1, np.float32)

    def count(turn: int) -> float:
        return output(model, "incr_counter_by", delta=one) if turn % 2 else output(model, "incr_counter")

    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(count, range(2000)))
    assert sorted(counts) == list(range(1, 2001))


def test_an_answer_is_no_memory_of_the_variable(load: Load) -> None:
    model = load(tf1_savedmodels.make_counter)
    before = model.run("get_counter", {}, ())["output"]
    output(model, "incr_counter")
    assert float(before) == 0


@pytest.mark.parametrize("make", [tf1_savedmodels.make_half_plus_three, tf1_savedmodels.make_half_plus_three_of_0_12])
def test_the_classic_example_model(load: Load, make: savedmodels.Make) -> None:
    model = load(make)
    assert isinstance(model, SessionModel)
    assert model.run("serving_default", {"x": float32([1], [2], [5])}, ())["y"].tolist() == [[3.5], [4], [5.5]]
    assert model.run("serving_default", {"x": float32(2)}, ("y",))["y"].tolist() == [4], "the graph judges shapes"
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[2.0]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString()
    examples = {"inputs": np.array([example, example], STRING)}
    assert model.run("classify_x_to_y", examples, ())["scores"].tolist() == [[4], [4]]
    assert model.run("regress_x_to_y", examples, ())["outputs"].tolist() == [[4], [4]]
    assert model.run("filename", {}, ())["filename"].item().endswith(b"foo.txt"), "its init op has run"
    x = model.signatures["serving_default"].inputs["x"]
    assert (x.dtype, x.shape, x.tensor_name) == (np.float32, (None, 1), "x:0")


def test_models_whose_variables_have_the_same_names_do_not_share_them(load: Load) -> None:
    two, three = load(tf1_savedmodels.make_half_plus_two), load(tf1_savedmodels.make_half_plus_three)
    x = {"x": float32([2])}
    for model, expected in ((two, 3), (three, 4), (two, 3)):
        assert model.run("serving_default", x, ())["y"].item() == expected


def test_a_table_is_filled_from_its_asset_and_only_assets_are_read_later(runtime: Runtime, tmp_path: Path) -> None:
    tf1_savedmodels.make_vocabulary(tmp_path / "1")
    model = runtime.load(tmp_path / "1")
    assert keep_assets(tmp_path / "1")
    shutil.rmtree(tmp_path / "1")
    words = np.array([b"c", b"a", b"?"], STRING)
    assert model.run("serving_default", {"words": words}, ())["ids"].tolist() == [2, 0, -1]
    assert not model.signatures["serving_default"].writes
    model.close()


def test_a_variable_in_parts_is_whole(load: Load) -> None:
    model = load(tf1_savedmodels.make_partitioned)
    answer = model.run("serving_default", {"rows": np.array([5, 0, 2])}, ())["embedding"]
    assert answer.tolist() == [[10, 11], [0, 1], [4, 5]]


@pytest.mark.parametrize("public", [False, True], ids=["callables", "public"])
def test_signatures_of_odd_forms(load: Load, monkeypatch: pytest.MonkeyPatch, public: bool) -> None:
    if public:
        monkeypatch.setattr(private_api, "works", lambda feature: False)
    model = load(tf1_savedmodels.make_awkward)
    x = float32(1, 2)
    answer = model.run("echo", {"x": x}, ())
    assert {name: array.tolist() for name, array in answer.items()} == {"x": [1, 2], "scaled": [3, 6]}
    assert not np.shares_memory(answer["x"], x)
    answer = model.run("twice", {"x": x}, ("two", "one"))
    assert [(name, array.tolist()) for name, array in answer.items()] == [("two", [3, 6]), ("one", [3, 6])]
    assert not np.shares_memory(*answer.values())
    with pytest.raises(InvalidRequest, match="placeholder tensor 'other'"):
        model.run("unfed", {"x": x}, ())


def test_a_signature_that_lacks_an_input_harms_no_other(load: Load) -> None:
    model = load(tf1_savedmodels.make_unfed)
    assert model.run("whole", {"x": float32(1, 2)}, ())["y"].tolist() == [3, 6]
    with pytest.raises(InvalidRequest, match="placeholder tensor 'other'"):
        model.run("unfed", {"x": float32(1, 2)}, ())


def test_an_unwanted_output_is_not_computed(load: Load) -> None:
    model = load(tf1_savedmodels.make_awkward)
    inputs = {"text": np.array([b"four"], STRING)}
    with pytest.raises(InvalidRequest, match="could not correctly convert string: four"):
        model.run("parts", inputs, ())
    assert model.run("parts", inputs, ("length",))["length"].tolist() == [4]


def test_wrong_calls_are_rejected(load: Load) -> None:
    model = load(tf1_savedmodels.make_counter)
    with pytest.raises(InvalidRequest, match="inputs must be 'delta', not none"):
        model.run("incr_counter_by", {}, ())
    with pytest.raises(SignatureNotFound, match="'nope' not found; there are 'get_counter', "):
        model.run("nope", {}, ())
    model.close()
    with pytest.raises(InferenceFailed, match="closed"):
        model.run("get_counter", {}, ())


def test_it_has_no_variant_to_stop(load: Load) -> None:
    model = load(tf1_savedmodels.make_half_plus_three)
    assert isinstance(model, PlainModel)
    model.stop_variants("serving_default")
    assert model.run_plain("serving_default", {"x": float32([2])}, ())["y"].item() == 4


def test_close_frees_the_graph_without_a_collection(runtime: Runtime, tmp_path: Path) -> None:
    tf1_savedmodels.make_half_plus_three(tmp_path)
    with no_collection() as collections:
        before = alive(tf.Graph), alive(tf.Operation)
        model = runtime.load(tmp_path)
        model.run("serving_default", {"x": float32([2])}, ())
        model.close()
        assert (alive(tf.Graph), alive(tf.Operation)) == before
    assert not collections


def test_a_model_without_references_needs_no_session(load: Load) -> None:
    assert not isinstance(load(savedmodels.make_tf1), SessionModel)
    assert not isinstance(load(savedmodels.make_sparse_tf1), SessionModel)
    assert not isinstance(load(savedmodels.make_half_plus_two), SessionModel)


def test_loading_says_nothing_of_old_age(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    load(tf1_savedmodels.make_counter)
    assert "deprecated" not in caplog.text


def test_unloading_frees_variables_that_tensorflow_never_frees_for_functions(runtime: Runtime, tmp_path: Path) -> None:
    def use() -> None:
        model = runtime.load(tmp_path)
        model.run("serving_default", {"x": float32(1)}, ())
        model.close()

    tf1_savedmodels.make_large(tmp_path)
    use()
    use()  # now malloc has what it keeps
    before = resident_mb()
    for _ in range(4):
        use()
    assert resident_mb() - before < 2 * tf1_savedmodels.LARGE_MB, "once and a half may still be in malloc's hands"


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_a_signature_of_a_tensor_that_is_not_there_says_so(runtime: Runtime, tmp_path: Path) -> None:
    def rename(path: Path, signature: str, output: str) -> None:
        file = path / "saved_model.pb"
        proto = SavedModelProto.FromString(file.read_bytes())
        proto.meta_graphs[0].signature_def[signature].outputs[output].name = "nowhere:0"
        file.write_bytes(proto.SerializeToString())

    tf1_savedmodels.make_counter(tmp_path / "counter")
    rename(tmp_path / "counter", "incr_counter", "output")
    model = runtime.load(tmp_path / "counter")
    assert output(model, "get_counter") == 0
    with pytest.raises(ServingError, match="nowhere"):
        output(model, "incr_counter")
    model.close()

    savedmodels.make_tf1(tmp_path / "tf1")
    rename(tmp_path / "tf1", "classify", "scores")
    model = runtime.load(tmp_path / "tf1")  # functions load all signatures or none, so it runs in a session
    assert "nowhere" in note_of(model)
    x = np.array([[2]], np.float32)
    assert model.run("regress", {"inputs": x}, ())["outputs"].tolist() == [[6]]
    with pytest.raises(ServingError, match="nowhere"):
        model.run("classify", {"inputs": x}, ())
    model.close()
