"""The whole command on the CPU, in seconds: it runs, and says of all that needs a GPU that it was not measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import SHARES, _ended
from bench.gpu_parts.report import DRY_RUN
from bench.support.cache import ROOT
from tests.deploy.pages.commands import commands, words
from tests.support.waiting import HANG_S

NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}


def gpu(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.gpu", *options]
    return subprocess.run(command, cwd=ROOT, env=NO_GPU, capture_output=True, text=True, check=False)


def test_a_dry_run_goes_through_all_parts_and_says_what_was_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    dry = words(commands("docs/benchmark.md", "python")[-1])
    assert dry[:3] == ["-m", "bench.gpu", "--dry-run"]
    done = gpu(*dry[2:], "--slice", "0.005", "--folder", str(tmp_path / "models"), "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(DRY_RUN) == 2
    found = json.loads(file.read_text())
    assert found["dry_run"]
    assert list(found["parts"]) == list(SHARES)
    for name, part in found["parts"].items():
        assert (part["done"], part["failed"], part["on"]) == (True, "", "CPU"), name
        assert "Predicted" in part["predicted"]
        assert all(len(figure["values"]) == 1 and figure["median"] > 0 for figure in part["figures"])
        assert all(bound["within"] for bound in part["bounds"])
        assert any("GPU" in each["why"] for each in part["not_measured"])
    assert {name: len(part["figures"]) for name, part in found["parts"].items()} == {
        "throughput": 51, "copies": 15, "variants": 9, "precision": 2, "replicas": 3,
    }  # fmt: skip
    printed = [line.split("because")[0] for line in done.stdout.splitlines() if "NOT MEASURED" in line]
    for what in ("bare loops on a GPU", "page-locked staging", "XLA on a GPU", "TF32", "several GPUs"):
        assert sum(what in line for line in printed) == 2, what  # where it would stand, and in the summary


def test_without_a_gpu_nothing_is_measured_unless_a_dry_run_is_asked_for(tmp_path: Path) -> None:
    done = gpu("--json", str(tmp_path / "gpu.json"))
    assert done.returncode == 2
    assert "NOTHING WAS MEASURED: TensorFlow sees no GPU here" in done.stderr
    assert not (tmp_path / "gpu.json").exists()


def test_an_unknown_part_is_named() -> None:
    done = gpu("copiez")
    assert done.returncode == 2
    assert "there is no part copiez, only throughput, copies" in done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", ""),
        ("raise SystemExit(3)", "ended with 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended with SIGKILL"),
    ],
)
def test_a_part_that_does_not_come_to_its_end_is_told(code: str, said: str) -> None:
    assert _ended([sys.executable, "-c", code], HANG_S, os.environ) == said


def test_a_part_that_hangs_is_ended_in_time() -> None:
    said = _ended([sys.executable, "-c", "import threading; threading.Event().wait()"], 0.1, os.environ)
    assert said == "was ended after 0 s; what it found until then is kept"
