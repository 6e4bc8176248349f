import importlib
import logging
from pathlib import Path

import pytest


def test_settings_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_MODELS", str(tmp_path))
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        main = importlib.reload(importlib.import_module("app.main"))
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
    assert main.app.server.settings.models == tmp_path


def test_frontends_are_not_started_under_uvicorn_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FERRY_FRONTENDS", "2")
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        importlib.reload(importlib.import_module("app.main"))
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
    assert "frontends does nothing under uvicorn" in capsys.readouterr().err
