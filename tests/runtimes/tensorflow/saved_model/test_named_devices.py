"""Models that lie on several devices: real TensorFlow, in a process that has two of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.tensorflow.saved_model.named_devices import named_devices
from app.runtimes.tensorflow.saved_model.signature_defs import serving_graph
from tests.support.forks.programs import run_program
from tests.support.savedmodels import make_half_plus_two, make_on_a_gpu, make_placed

BOTH = ["CPU:0", "CPU:1"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    done = run_program("-m", "tests.runtimes.placed_on_two", str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_devices_of_operations_are_found_and_not_those_that_only_save(tmp_path: Path) -> None:
    for make in (make_half_plus_two, make_on_a_gpu):
        make(tmp_path / make.__name__)
    assert list(named_devices(serving_graph(tmp_path / "make_half_plus_two"))) == []
    assert list(named_devices(serving_graph(tmp_path / "make_on_a_gpu"))) == ["GPU:0"]


def test_devices_are_in_order_and_cpus_beside_gpus_do_not_count(tmp_path: Path) -> None:
    for name, devices in {"cpus": ("CPU:2", "CPU:10", "CPU:0"), "gpus": ("GPU:1", "CPU:0", "GPU:0")}.items():
        make_placed(tmp_path / name, devices)
    assert list(named_devices(serving_graph(tmp_path / "cpus"))) == ["CPU:0", "CPU:2", "CPU:10"]
    assert list(named_devices(serving_graph(tmp_path / "gpus"))) == ["GPU:0", "GPU:1"]


@pytest.mark.parametrize("wanted", ["auto", "xla"])
def test_a_model_lies_where_it_was_saved_and_runs_plain(found: dict[str, Any], wanted: str) -> None:
    loaded = found["loaded"][wanted]
    assert loaded["devices"] == BOTH
    assert loaded["replicas"] == 1
    assert loaded["variables"] == [BOTH, BOTH]
    assert loaded["variants"] == ["plain"]
    assert loaded["compiled"] == 0
    assert loaded["apart"] < 1e-5


def test_each_device_computes_with_the_variables_that_lie_there(found: dict[str, Any]) -> None:
    products = found["loaded"]["auto"]["computed on"]
    assert set(products) == set(BOTH)
    assert products["CPU:0"] == products["CPU:1"] > 0


def test_what_names_devices_that_are_not_there_runs_and_the_log_says_where(found: dict[str, Any]) -> None:
    assert found["absent"]["devices"] == []
    assert found["absent"]["apart"] < 1e-5
    log = "\n".join(found["log"])
    assert "absent/1 names devices that TensorFlow does not see: GPU:0, GPU:1; it sees CPU:0, CPU:1" in log
    assert "placed/1 lies on CPU:0, CPU:1, as its graph says: it runs plain, and has one replica" in log


def test_served_beside_another_model_both_answer_rightly(found: dict[str, Any]) -> None:
    served = found["served"]
    assert served["apart"] < 1e-5
    assert served["calls together"] >= 30, "120 requests, at most 4 a call"
    assert served["other calls"] >= 15
    assert served["stopped"]


def test_nothing_else_runs_on_its_devices_beside_its_calls(found: dict[str, Any]) -> None:
    assert found["served"]["beside calls together"] == []


def test_health_and_metrics_say_that_its_replica_lies_on_both(found: dict[str, Any]) -> None:
    served = found["served"]
    assert served["replicas"] == {"placed/1": ["CPU:0+CPU:1"], "image_net/1": BOTH}
    assert 'ferry_replicas{model="placed",version="1"} 1.0' in served["metrics"]
