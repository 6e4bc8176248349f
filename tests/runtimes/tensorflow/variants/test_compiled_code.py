import gc
import os
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.time_budget import TimeBudget
from app.runtime import RuntimeOptions, VariantOptions
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from app.runtimes.tensorflow.variants.compiled_code import keep_compiled_code, kind_of_machine, prune
from tests.support import savedmodels
from tests.support.forks.programs import run_program

PROGRAM = """
import sys
from pathlib import Path
from app.runtime import RuntimeOptions, VariantOptions
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
TensorFlowRuntime(RuntimeOptions(variants=VariantOptions(cache=Path(sys.argv[1]))))
import tensorflow as tf
double = tf.function(lambda x: tf.tanh(x) * 2.0, jit_compile=True, autograph=False)
print(double(tf.zeros([3, 4])).numpy().sum())
"""


def test_what_one_process_compiled_another_one_reads(tmp_path: Path) -> None:
    seen = []
    environment = {name: value for name, value in os.environ.items() if name != "TF_XLA_FLAGS"}  # a test may set it
    for _ in range(2):
        done = run_program("-c", PROGRAM, str(tmp_path), environment=environment)
        assert done.stdout == "0.0\n", done.stderr
        if not tf.__version__.startswith("2.19."):  # it tries to read each file as text first, and says so
            assert "Error parsing" not in done.stderr
        (file,) = (tmp_path / "xla").rglob("*.pb")
        assert file.parent.stat().st_mode & 0o777 == 0o700
        seen.append(file.stat().st_mtime_ns)
    assert seen[0] == seen[1]


LOADING = """
import sys
from math import inf
from pathlib import Path
from app.core.time_budget import TimeBudget
from app.runtime import RuntimeOptions, VariantOptions
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
cache, *models = map(Path, sys.argv[1:])
runtime = TensorFlowRuntime(RuntimeOptions(variants=VariantOptions(wanted="xla", cache=cache)))
for model in models:
    loaded = runtime.load(model)
    print({each.variant for each in loaded.tune([1, 2], lambda *_: None, TimeBudget(inf))})
"""


def test_code_is_found_again_whatever_was_loaded_before(tmp_path: Path) -> None:
    """With variables that are constants, with variables that are passed, and with loops and branches."""
    makers = (savedmodels.make_half_plus_two, savedmodels.make_image_net, make_large, make_looping)
    models = [tmp_path / maker.__name__ / "1" for maker in makers]
    for maker, model in zip(makers, models, strict=True):
        maker(model)
    environment = {name: value for name, value in os.environ.items() if name != "TF_XLA_FLAGS"}

    def compiled(*loaded: Path) -> dict[str, int]:
        done = run_program("-c", LOADING, str(tmp_path / "cache"), *map(str, loaded), environment=environment)
        assert done.stdout == "{'xla'}\n" * len(loaded), done.stderr
        return {file.name: file.stat().st_mtime_ns for file in (tmp_path / "cache" / "xla").rglob("*.pb")}

    first = compiled(*models)
    assert len(first) >= 2 * len(models)
    assert compiled(*reversed(models)) == first
    assert compiled(models[1]) == first


def make_looping(path: Path, value: float = 0.1) -> None:
    """x [batch, 4] -> y, by a branch in a loop that reads a variable."""
    module = tf.Module()
    module.weights = tf.Variable(tf.fill([4, 4], value))
    spec = tf.TensorSpec([None, 4], tf.float32, name="x")

    def step(count: Any, row: Any) -> Any:
        large = tf.reduce_sum(row) > 1e6
        return count + 1, tf.cond(large, lambda: row * 0.5, lambda: row @ module.weights)

    def call(x: Any) -> Any:
        return {"y": tf.while_loop(lambda count, _: count < 3, step, (0, x))[1]}

    module.call = tf.function(call, input_signature=[spec])
    tf.saved_model.save(module, str(path), signatures=module.call)


def make_large(path: Path, value: float = 1.0) -> None:
    """x [batch, 4] -> y, by variables of 2 MB."""
    module = tf.Module()
    module.weights = tf.Variable(tf.fill([4, 1 << 17], value))
    spec = tf.TensorSpec([None, 4], tf.float32, name="x")
    module.call = tf.function(lambda x: {"y": tf.reduce_sum(x @ module.weights, 1)}, input_signature=[spec])
    tf.saved_model.save(module, str(path), signatures=module.call)


@pytest.mark.parametrize("wanted", ["xla", "frozen"])
def test_loops_of_equal_content_share_names_and_outlive_each_other(wanted: str, tmp_path: Path) -> None:
    runtime = TensorFlowRuntime(RuntimeOptions(variants=VariantOptions(wanted=wanted)))
    for number, value in enumerate((0.1, 0.1, 0.5)):
        make_looping(tmp_path / str(number), value)

    def load(number: int) -> SavedModel:
        loaded = runtime.load(tmp_path / str(number))
        assert isinstance(loaded, SavedModel)
        assert [each.variant for each in loaded.tune([1], lambda *_: None, TimeBudget(inf))] == [wanted]
        return loaded

    def answer(loaded: SavedModel) -> float:
        return float(loaded.run("serving_default", {"x": np.ones((1, 4), np.float32)}, ())["y"][0, 0])

    first, second, other = load(0), load(1), load(2)
    assert [answer(each) for each in (first, second, other)] == pytest.approx([0.064, 0.064, 8.0])
    first.close()
    del first
    gc.collect()
    assert [answer(each) for each in (second, other)] == pytest.approx([0.064, 8.0])
    second.close()
    assert [answer(each) for each in (load(0), other)] == pytest.approx([0.064, 8.0])


def test_versions_of_one_graph_share_names_and_keep_their_own_variables(tmp_path: Path) -> None:
    runtime = TensorFlowRuntime(RuntimeOptions(variants=VariantOptions(wanted="xla")))

    def load(version: int) -> SavedModel:
        folder = tmp_path / str(version)
        if not folder.exists():
            make_large(folder, float(version))
        loaded = runtime.load(folder)
        assert isinstance(loaded, SavedModel)
        assert [each.variant for each in loaded.tune([1], lambda *_: None, TimeBudget(inf))] == ["xla"]
        return loaded

    def answer(loaded: SavedModel) -> float:
        return float(loaded.run("serving_default", {"x": np.ones((1, 4), np.float32)}, ())["y"][0])

    first, second = load(1), load(2)
    assert (answer(first), answer(second)) == (1 << 19, 1 << 20)
    first.close()
    assert answer(second) == 1 << 20
    again = load(1)
    second.close()
    assert answer(again) == 1 << 19


@pytest.fixture
def no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "--other=1")


@pytest.mark.usefixtures("no_flags")
def test_flags_of_others_stay(tmp_path: Path) -> None:
    folder = keep_compiled_code(tmp_path, "2.21")
    assert os.environ["TF_XLA_FLAGS"].startswith("--other=1 ")
    assert os.environ["TF_XLA_FLAGS"].endswith(f" --tf_xla_persistent_cache_directory={folder}")
    assert keep_compiled_code(tmp_path / "second", "2.21") is None
    assert not (tmp_path / "second").exists()


@pytest.mark.usefixtures("no_flags")
def test_a_folder_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert keep_compiled_code(tmp_path / "file", "2.21") is None
    assert keep_compiled_code(tmp_path / "with space", "2.21") is None
    assert os.environ["TF_XLA_FLAGS"] == "--other=1"


def test_the_oldest_code_and_empty_files_go(tmp_path: Path) -> None:
    for age, (name, size) in enumerate((("new", 40), ("empty", 0), ("older", 40), ("oldest", 40))):
        (tmp_path / name).write_bytes(b"x" * size)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    prune(tmp_path, most_bytes=100)
    assert {file.name for file in tmp_path.iterdir()} == {"new", "older"}


def test_another_cpu_or_tensorflow_has_code_of_its_own(tmp_path: Path) -> None:
    names = set()
    for text in ("flags : sse avx\n", "flags : sse avx\nprocessor : 7\n", "flags : sse avx amx\n"):
        (tmp_path / "cpuinfo").write_text(text)
        names.add(kind_of_machine("2.21", tmp_path / "cpuinfo"))
    assert len(names) == 2
    assert kind_of_machine("2.20", tmp_path / "cpuinfo") not in names
    assert kind_of_machine("2.21", tmp_path / "none")
