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
