"""From the setting to the health page, the metrics and the log, on a real model."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.config.settings import Settings
from app.config.sources import SettingsError, load_settings
from app.core.events import ModelStateChanged, VariantsChosen, tell_all
from app.core.inference import InferenceRequest
from app.instrumentation import logs
from app.instrumentation.counts import Counts
from app.instrumentation.metrics import Metrics
from app.instrumentation.model_facts import ModelFacts
from app.runtimes.tensorflow.execution.variant import ALTERNATIVES, PLAIN
from app.server.server import Server
from tests.instrumentation.pages import document_of, metrics_text
from tests.support import savedmodels
from tests.support.waiting import HANG_S

X = np.random.default_rng(3).random([3, 8, 8], np.float32)


def served(folder: Path, **more: Any) -> tuple[list[Any], dict[str, Any], str]:
    """Answers to X row by row and together, the health page, and the metrics page."""

    async def main() -> tuple[list[Any], dict[str, Any], str]:
        values = {"max_batch_size": 4, "grpc_port": 0, "variant_cache": str(folder / "cache")}
        values |= {"ready_when": "tuned", "load_budget_s": HANG_S, **more}
        server = Server(Settings(models=folder / "models", **values))
        await server.start()
        assert server._starting is not None
        await server._starting
        model = server.repository.resolve("net")
        requests = [{"image": X[:1]}, {"image": X[1:2]}, {"image": X}]
        answers = [(await model.infer(InferenceRequest(inputs))).outputs["probabilities"] for inputs in requests]
        page = (await server.metrics())[0].decode()
        summary = document_of(await server.summary())
        await server.stop()
        assert document_of(await server.summary())["variants"] == {}
        return answers, summary, page

    return asyncio.run(main())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    savedmodels.make_image_net(tmp_path / "models" / "net" / "1")
    return tmp_path


def test_every_variant_gives_the_same_answers_and_is_told_everywhere(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    want, _, _ = served(folder, execution_variant="plain")
    for variant in ALTERNATIVES:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            answers, summary, page = served(folder, execution_variant=variant)
        for answer, expected in zip(answers, want, strict=True):
            np.testing.assert_allclose(answer, expected, rtol=1e-4)
        entries = summary["variants"]["net/1"]["serving_default"]
        assert [(entry["batch_size"], entry["variant"]) for entry in entries] == [(size, variant) for size in (1, 2, 4)]
        labels = f'batch_size="2",model="net",signature="serving_default",variant="{variant}",version="1"'
        assert f"ferry_execution_variant{{{labels}}} 1.0" in page
        assert f"by batch size: 1-4 {variant}" in caplog.text


def test_auto_is_the_default_and_writes_to_its_cache(folder: Path) -> None:
    _, summary, _ = served(folder)
    assert {entry["variant"] for entry in summary["variants"]["net/1"]["serving_default"]} <= {PLAIN, *ALTERNATIVES}
    assert len(list((folder / "cache").glob("*.json"))) == 1


def test_without_warm_up_nothing_is_measured(folder: Path) -> None:
    _, summary, page = served(folder, warm_up=False, execution_variant="xla")
    assert summary["variants"] == {}
    assert "ferry_execution_variant{" not in page


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(folder: Path) -> None:
    (folder / "file").touch()
    _, summary, _ = served(folder, variant_cache=str(folder / "file"), load_budget_s=0.0)
    assert {entry["variant"] for entry in summary["variants"]["net/1"]["serving_default"]} == {"plain"}


def test_gains_are_logged_and_measured_until_the_version_ends(caplog: pytest.LogCaptureFixture) -> None:
    event = VariantsChosen("m", 1, "f", {1: ("xla", 1.416), 2: ("xla", 1.2), 8: ("plain", 1.0), 16: ("xla", 1.3)})
    with caplog.at_level(logging.INFO):
        tell_all(logs.SUBSCRIPTIONS)(event)
    assert caplog.messages == [
        "Model m version 1 executes signature 'f', by batch size: 1-2 xla (1.20-1.42x); 8 plain; 16 xla (1.30x)"
    ]
    facts = ModelFacts()
    metrics = Metrics(Counts(), facts)
    tell = tell_all(metrics.subscriptions, facts.subscriptions)
    tell(ModelStateChanged("m", 1, "LOADING"))
    tell(event)
    line = 'ferry_execution_variant{batch_size="1",model="m",signature="f",variant="xla",version="1"} 1.42'
    assert line in metrics_text(metrics)
    tell(ModelStateChanged("m", 1, "UNLOADING"))
    assert "ferry_execution_variant{" in metrics_text(metrics)
    tell(ModelStateChanged("m", 1, "END"))
    assert "ferry_execution_variant{" not in metrics_text(metrics)


def test_settings_name_the_variants() -> None:
    assert load_settings({"execution_variant": "inline"}).execution_variant == "inline"
    with pytest.raises(SettingsError, match="execution-variant"):
        load_settings({"execution_variant": "quick"})
