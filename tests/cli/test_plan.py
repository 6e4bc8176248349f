"""`ferry plan`: what it prints for curves that are known, and what it measures of a model."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from app.cli import app
from app.config.settings import PREFIX
from app.planning.measured_curve import MeasuredCurve
from tests.planning.curves import curve_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


def ferry_plan(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with curves and prices."""
    curve_of(0.008, 0.0008).write(tmp_path / "cpu.json")
    curve_of(0.004, 0.00005, machine="gpu").write(tmp_path / "gpu.json")
    (tmp_path / "prices.yaml").write_text("cpu: 0.1\ngpu: 0.8\n")
    return tmp_path


def planned(folder: Path, *more: object) -> dict[str, Any]:
    both = ["--curve", folder / "cpu.json", "--curve", folder / "gpu.json"]
    done = ferry_plan(*both, "--rate", 5000, "--p99", 100, "--json", *more)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_has_the_plan_and_what_follows(files: Path) -> None:
    found = planned(files)
    best, other = found["plans"]
    assert (best["machine"], other["machine"]) == ("gpu", "cpu")  # fewer nodes
    assert best["replicas"] == best["needed"] + 1
    assert best["node_lost"]["figures"]["p99_s"] <= 0.1
    assert best["cost_an_hour"] is None
    assert found["autoscaling"]["least"] == 2
    assert found["cheaper_from"] == []


def test_prices_decide_and_tell_from_where_on(files: Path) -> None:
    found = planned(files, "--prices", files / "prices.yaml")
    best, other = found["plans"]
    assert best["cost_an_hour"] < other["cost_an_hour"]
    assert best["cost_an_hour"] == {"cpu": 0.1, "gpu": 0.8}[best["machine"]] * best["nodes"]
    assert {each["machine"] for each in found["cheaper_from"]} == {"gpu"}


def test_the_table_says_the_same(files: Path) -> None:
    found = planned(files, "--prices", files / "prices.yaml")
    both = ["--curve", files / "cpu.json", "--curve", files / "gpu.json", "--prices", files / "prices.yaml"]
    done = ferry_plan(*both, "--rate", 5000, "--p99", 100, "--burst", 1.0)
    assert done.exit_code == 0, done.output
    (replicas,) = [line.split() for line in done.stdout.splitlines() if "replicas (spare)" in line]
    assert replicas[2::2] == [str(each["replicas"]) for each in found["plans"]]
    (cost,) = [line.split() for line in done.stdout.splitlines() if "cost an hour" in line]
    assert [float(each) for each in cost[3:]] == [each["cost_an_hour"] for each in found["plans"]]
    assert f"From {found['cheaper_from'][0]['from_rate']:,.0f} requests/s on gpu costs less than cpu." in done.stdout
    assert "sum(rate(ferry_batch_rows_sum" in done.stdout
    assert "The busy share does not tell" in done.stdout


def test_manifests_are_yaml(files: Path) -> None:
    wanted = ["--curve", files / "cpu.json", "--rate", 5000, "--p99", 100, "--deployment", "shop"]
    (scaled,) = yaml.safe_load_all(ferry_plan(*wanted, "--keda", "--prometheus", "http://p:9090").stdout)
    assert scaled["spec"]["scaleTargetRef"]["name"] == "shop"
    assert scaled["spec"]["triggers"][0]["metadata"]["serverAddress"] == "http://p:9090"
    autoscaler, rules = yaml.safe_load_all(ferry_plan(*wanted, "--hpa").stdout)
    assert autoscaler["kind"] == "HorizontalPodAutoscaler"
    assert rules["externalRules"]


def test_names_that_look_like_numbers_or_truth_values_are_quoted(files: Path) -> None:
    """By YAML 1.2 and Go's readers of it, too, which see more numbers than PyYAML."""
    for name in ("01", "1e3", "n", "0o7", "1.5"):
        for form in ("--keda", "--hpa"):
            done = ferry_plan("--curve", files / "cpu.json", "--rate", 50, "--p99", 100, form, "--deployment", name)
            assert f"  name: '{name}'\n" in done.stdout
            assert next(yaml.safe_load_all(done.stdout))["spec"]["scaleTargetRef"]["name"] == name


def test_models_whose_calls_take_seconds_have_a_rate(files: Path) -> None:
    curve_of(10.0, 1.0).write(files / "slow.json")
    wanted = ["--curve", files / "slow.json", "--rate", 0.01, "--p99", 60_000]
    (plan,) = json.loads(ferry_plan(*wanted, "--json").stdout)["plans"]
    assert 0 < plan["most_rate"] < 10
    shown = ferry_plan(*wanted).stdout
    assert re.search(rf"most requests/s of a replica +{plan['most_rate']:.3g}, by", shown)
    assert re.search(rf"usually 0.01/s on all +{plan['replica_rate']:.3g}/s each", shown)


def test_brackets_in_names_are_shown_as_they_are(files: Path) -> None:
    replace(curve_of(0.008, 0.0008), machine="a[bold]b", model="m[/x").write(files / "odd.json")
    done = ferry_plan("--curve", files / "odd.json", "--rate", 50, "--p99", 100)
    assert done.exit_code == 0, done.output
    assert "a[bold]b" in done.stdout
    assert 'model="m[/x"' in done.stdout


def test_calls_that_take_next_to_no_time_are_planned(files: Path) -> None:
    curve_of(1e-300, 1e-303).write(files / "quick.json")
    done = ferry_plan("--curve", files / "quick.json", "--rate", 50, "--p99", 100, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["plans"][0]["needed"] == 1


def test_a_machine_that_cannot_is_left_out(files: Path) -> None:
    wanted = ["--curve", files / "cpu.json", "--curve", files / "gpu.json", "--rate", 100, "--p99", 8.5]
    done = ferry_plan(*wanted, "--json")
    assert [each["machine"] for each in json.loads(done.stdout)["plans"]] == ["gpu"]
    assert "left out: p99 is 8.5 ms" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--model or --curve is missing"),
        (["--curve", "cpu.json"], "--rate is missing"),
        (["--curve", "cpu.json", "--rate", 5], "--p99 is missing"),
        (["--curve", "cpu.json", "--rate", -5, "--p99", 5], "rate is -5, but should be from 0.001"),
        (["--curve", "cpu.json", "--rate", 5, "--p99", 5], "p99 is 5 ms, but should be more than 8.8 ms on cpu"),
        (["--curve", "cpu.json", "--save-curve", "x"], "--save-curve needs --model"),
        (["--curve", "none.json", "--rate", 5, "--p99", 50], "none.json"),
        (["--curve", "prices.yaml", "--rate", 5, "--p99", 50], "prices.yaml is no JSON"),
        (["--curve", "cpu.json", "--curve", "cpu.json", "--rate", 5, "--p99", 50], "machine 'cpu' has several curves"),
        (
            ["--curve", "cpu.json", "--prices", "cpu.json", "--rate", 5, "--p99", 50],
            "the price of machine is 'cpu', but",
        ),
        (["--curve", "cpu.json", "--prices", "other.yaml", "--rate", 5, "--p99", 50], "the price list has no machine"),
        (["--curve", "cpu.json", "--json", "--keda", "--rate", 5, "--p99", 50], "expected one of them"),
        (["--model", "none", "--rate", 5, "--p99", 50], "No model at none"),
        (["--model", "none", "--machine", "a\nb", "--save-curve", "x"], "machine is 'a\\nb', but should be a name"),
        (["--curve", "cpu.json", "--rate", 5, "--p99", 50, "--rows", "9" * 400], "rows is 999"),
        (
            ["--curve", "cpu.json", "--rate", 5, "--p99", 50, "--keda", "--deployment", "a[b"],
            "deployment is 'a[b', but",
        ),
        (["--curve", "cpu.json", "--rate", 5, "--p99", 50, "--keda", "--prometheus", "p"], "prometheus is 'p', but"),
        (["--curve", "cpu.json", "--curve", "else.json", "--rate", 5, "--p99", 50], "models 'm' and 'x', but should"),
    ],
)
def test_what_is_wrong_is_one_line(
    files: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], text: str
) -> None:
    monkeypatch.chdir(files)
    (files / "other.yaml").write_text("tpu: 3\n")
    replace(curve_of(0.1, 0.1, machine="tpu"), model="x").write(files / "else.json")
    done = ferry_plan(*arguments)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert text in done.stderr
    assert done.stderr.startswith("ferry: ")
    assert done.stderr.count("\n") == 1


def test_a_model_is_measured_and_its_curve_plans_as_it_does(tmp_path: Path) -> None:
    """By the model that comes with Ferry; its curve, not its seconds, is what can be known."""
    file = tmp_path / "digits.json"
    done = ferry_plan("--model", ROOT / "models/digits", "--save-curve", file, "--machine", "desk")
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    curve = MeasuredCurve.read(file)
    assert (curve.machine, curve.model, curve.signature) == ("desk", "digits", "serving_default")
    assert tuple(curve.seconds) == (1, 2, 4, 8, 16, 32, 64)
    assert all(0 < seconds < 60 for seconds in curve.seconds.values())
    found = json.loads(ferry_plan("--curve", file, "--rate", 10, "--p99", 100_000, "--json").stdout)
    assert found["plans"][0]["needed"] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model", ROOT / "models/text"], "inputs of free shape"),
        (["--model", ROOT / "models/digits", "--signature", "none"], "The model has no signature 'none'; it has"),
        (["--model", ROOT / "models/digits", "--input", ROOT / "pyproject.toml"], "ferry: "),
    ],
)
def test_a_model_that_cannot_be_measured_is_told(arguments: list[object], text: str, tmp_path: Path) -> None:
    done = ferry_plan(*arguments, "--save-curve", tmp_path / "curve.json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert text in done.stderr
    assert not (tmp_path / "curve.json").exists()


def test_a_request_of_the_usual_shape_is_measured(tmp_path: Path) -> None:
    image = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"][0]["image"]
    (tmp_path / "request.json").write_text(json.dumps({"instances": [{"image": image}]}))
    done = ferry_plan(
        "--model", ROOT / "models/digits", "--input", tmp_path / "request.json", "--rate", 10, "--p99", 1e5, "--json"
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["plans"][0]["model"] == "digits"
