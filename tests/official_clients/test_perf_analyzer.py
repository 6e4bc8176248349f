"""perf_analyzer measures Ferry by each protocol that it speaks."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from tests.official_clients.conftest import Live
from tests.official_clients.environment import ENVIRONMENT, require, run
from tests.support.missing import skip_loudly

PERF = ENVIRONMENT / "perf"
ANALYZER = PERF / "bin/perf_analyzer"
BOUNDED = (
    *("--concurrency-range", "4", "--measurement-mode", "count_windows", "--measurement-request-count", "50"),
    *("--measurement-interval", "500", "--max-trials", "4", "--stability-percentage", "999"),
)


@pytest.fixture(scope="module")
def libraries() -> dict[str, str]:
    """The environment in which the binary finds its libraries: one is Debian's, one is beside it."""
    require(PERF)
    folders = f"{PERF}/nvidia/cuda_runtime/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {"LD_LIBRARY_PATH": folders}
    absent = [line.strip() for line in run(["ldd", str(ANALYZER)], environment).splitlines() if "not found" in line]
    if absent:
        skip_loudly(f"perf_analyzer is NOT tried, for it lacks {', '.join(absent)}. Install libb64-0d: .ci/packages")
    return environment


def analyze(folder: Path, libraries: dict[str, str], *arguments: str) -> dict[str, str]:
    """The measured line of the CSV that perf_analyzer writes, by its column names."""
    report = folder / "report.csv"
    written = run([str(ANALYZER), "-m", "digits", *arguments, *BOUNDED, "-f", str(report)], libraries)
    assert report.exists(), written
    with report.open() as lines:
        (row,) = csv.DictReader(lines)
    return row


@pytest.mark.parametrize("batch", ["1", "3"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_open_inference(live: Live, tmp_path: Path, libraries: dict[str, str], protocol: str, batch: str) -> None:
    address = live.rest if protocol == "http" else live.grpc
    row = analyze(tmp_path, libraries, "-i", protocol, "-u", address, "-b", batch)
    assert row["Concurrency"] == "4"
    assert float(row["Inferences/Second"]) > 0
    assert {"Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output"} <= row.keys()
    assert float(row["Server Compute Infer"]) > 0


@pytest.mark.parametrize("form", ["json", "binary"])
def test_forms_of_tensors(live: Live, tmp_path: Path, libraries: dict[str, str], form: str) -> None:
    forms = ("--input-tensor-format", form, "--output-tensor-format", form)
    assert float(analyze(tmp_path, libraries, "-i", "http", "-u", live.rest, *forms)["Inferences/Second"]) > 0


def test_tensorflow_serving(live: Live, tmp_path: Path, libraries: dict[str, str]) -> None:
    """TensorFlow Serving's protocol knows no batch dimension, so the shape names all."""
    row = analyze(
        tmp_path, libraries, "--service-kind", "tfserving", "-i", "grpc", "-u", live.grpc, "--shape", "image:1,8,8"
    )
    assert row["Concurrency"] == "4"
    assert float(row["Inferences/Second"]) > 0
