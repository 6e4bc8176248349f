"""Several replicas of a model on several devices: real TensorFlow, in a process that has three of them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from app.core.time_budget import TimeBudget
from app.runtime import ShapeTrial
from app.runtimes.tensorflow.saved_model.replicas import Replicas
from tests.support.forks.programs import run_program

PLACES = ["CPU:0", "CPU:1", "CPU:2"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    done = run_program("-m", "tests.runtimes.several_devices", str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_as_many_devices_are_used_as_replicas_are_wanted(found: dict[str, Any]) -> None:
    assert found["devices"] == {"0": PLACES[:1], "1": PLACES[:1], "2": PLACES[:2], "3": PLACES}
    assert found["too many"] == ("InvalidRequest: replicas is 4, but should be at most 3: TensorFlow sees 3 CPUs")


def test_each_replica_has_its_variables_on_its_own_device(found: dict[str, Any]) -> None:
    assert found["variables"] == PLACES


@pytest.mark.parametrize("variant", ["plain", "frozen", "xla"])
def test_each_replica_runs_on_its_own_device_and_answers_alike(found: dict[str, Any], variant: str) -> None:
    assert found["runs on"][variant] == PLACES
    assert found["apart"][variant] < 1e-5


def test_without_the_short_cut_into_tensorflow_it_is_the_same(found: dict[str, Any]) -> None:
    assert found["runs on publicly"] == PLACES


def test_what_is_compiled_for_buckets_is_compiled_on_each_device(found: dict[str, Any]) -> None:
    assert found["compiled"]["gains"] == [1.0, 0.0, 1.0], "the model has 40 positions"
    assert found["compiled"]["shapes"] == [[[1, 8], [4, 8]]] * 3
    assert found["compiled"]["places"] == PLACES


class Compiled:
    """Compiles whatever it is given, or nothing."""

    def __init__(self, gains: Sequence[float] = (), *, able: bool = True) -> None:
        self.gains = gains
        self.able = able
        self.rows: list[int] = []
        self.signatures: dict[str, Any] = {}

        self.run = self.run_plain = self.value_hints = self.adopt_shapes

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        self.rows = [len(trial.inputs["x"]) for _, trial in zip(self.gains, trials, strict=False)]
        return self.gains

    def adopt_shapes(self, signature: str, trials: Sequence[ShapeTrial]) -> bool:
        self.rows = [len(trial.inputs["x"]) for trial in trials]
        return self.able


@pytest.mark.parametrize(("able", "gains"), [(True, [2.0, 0.0, 1.5]), (False, ())])
def test_only_what_gains_and_what_all_can_use_counts_as_compiled(able: bool, gains: Sequence[float]) -> None:
    made: list[int] = []

    def trials() -> Iterable[ShapeTrial]:
        for rows in (1, 2, 4, 8):
            made.append(rows)
            yield ShapeTrial({"x": np.zeros((rows, 3))}, {})

    first, second = Compiled([2.0, 0.0, 1.5]), Compiled(able=able)
    assert Replicas([first, second]).compile_shapes("f", trials(), TimeBudget(1)) == gains  # type: ignore[list-item]  # fakes of models
    assert (first.rows, second.rows) == ([1, 2, 4], [1, 4])
    assert made == [1, 2, 4], "nothing is made that the first did not try"


def test_each_replica_rejects_alike(found: dict[str, Any]) -> None:
    assert len(found["rejections"]) == 3
    assert all(text.startswith("InvalidRequest: assertion failed: [x must not be") for text in found["rejections"])


def test_what_writes_state_or_names_its_device_has_one_replica_and_the_log_says_why(found: dict[str, Any]) -> None:
    assert found["replicas"] == {"image_net": 3, "counter": 1, "on_a_gpu": 1}
    log = "\n".join(found["log"])
    assert "counter/1 has one replica, on CPU:0, because it writes state: AssignAddVariableOp" in log
    assert "on_a_gpu/1 has one replica, on CPU:0, because its graph names devices: /device:GPU:0" in log


def test_a_server_computes_batches_on_all_replicas_and_answers_in_order(found: dict[str, Any]) -> None:
    served = found["served"]
    assert served["used"] == 3
    assert served["in order"]
    assert served["right"]
    assert served["stopped"]


def test_health_and_metrics_say_how_many_replicas_there_are(found: dict[str, Any]) -> None:
    served = found["served"]
    assert served["devices"] == PLACES
    assert served["replicas"]["image_net/1"] == PLACES
    assert served["replicas"]["counter/1"] == PLACES[:1]
    assert 'ferry_replicas{model="image_net",version="1"} 3.0' in served["metrics"]
    assert 'ferry_replicas{model="counter",version="1"} 1.0' in served["metrics"]
