"""Every command and manifest of docs/scaling.md, and its figures."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from app.cli import app
from app.planning.batch_queue import Calls, play
from app.planning.measured_curve import MeasuredCurve
from tests.deploy.pages.commands import commands, words

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
#: In their order on the page.
MEASURE, PLAN, KEDA, STRICT = (words(each) for each in commands("docs/scaling.md"))


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def output(command: list[str]) -> str:
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)


def test_a_model_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "digits.json"
    output([each.replace("digits.json", str(file)) for each in MEASURE])
    assert MeasuredCurve.read(file).model == "digits"


def test_the_plan_is_that_of_the_page() -> None:
    (table,) = shown("text")
    found = output(PLAN)
    assert found == table
    (break_even,) = re.findall(r"From [0-9,]+ requests/s on gpu costs less than cpu", found)
    assert f'line "{break_even}"' in " ".join(PAGE.split())


def test_the_scaled_object_is_that_of_the_page() -> None:
    (manifest,) = shown("yaml")
    assert output(KEDA) == manifest
    assert yaml.safe_load(manifest)["kind"] == "ScaledObject"


def test_a_machine_that_is_too_slow_is_left_out() -> None:
    assert "cpu" not in output(STRICT).splitlines()[2]


def test_the_headless_service_is_valid() -> None:
    manifest = yaml.safe_load((ROOT / "docs/examples/scaling/headless-service.yaml").read_text())
    kubernetes_validate.validate(manifest, "1.32", strict=True)
    base = yaml.safe_load((ROOT / "k8s/base/service.yaml").read_text())
    assert manifest["spec"]["clusterIP"] == "None"
    assert manifest["spec"]["selector"] == base["spec"]["selector"]
    assert {8500} == {port["port"] for port in manifest["spec"]["ports"]}


def test_the_device_of_the_page_is_always_busy_at_half_of_its_capacity() -> None:
    curve = MeasuredCurve.read(ROOT / "docs/examples/scaling/cpu.json")
    calls = Calls(curve.costs, 32, spread=tuple(curve.spread))
    assert round(100 * play(calls, calls.capacity / 2).busy) == 100


def test_the_table_of_balancers_is_that_of_the_results() -> None:
    rows = re.findall(
        r"^\| (poisson|bursty) \| \d+ \| ([^|]+) \| (\d+) \| [\d.]+ \| (\d+) \|",
        (ROOT / "bench/results/scaling.md").read_text(), re.MULTILINE,
    )  # fmt: skip
    assert len(rows) == 14
    section = PAGE.partition("\n## Load balancers\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \w", line)]
    for number, line in enumerate(lines):
        poisson, bursty = (f"{int(p99):,} ms ({int(worst):,})" for _, _, p99, worst in (rows[number], rows[number + 7]))
        assert line.endswith(f"| {poisson} | {bursty} |"), line
