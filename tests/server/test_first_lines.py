from __future__ import annotations

import logging
from shlex import quote
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.config.settings import Settings
from app.core.errors import ModelNotFound
from app.core.events import ModelStateChanged
from app.core.inference import ModelSignature, TensorSpec
from app.core.versions import VersionState
from app.server.first_lines import FirstLines, call_of

URL = "http://localhost:8501"


def model(*shape: int | None, name: str = "m") -> Any:
    spec = {"x": TensorSpec("x", np.dtype(np.float32), shape)}
    return SimpleNamespace(name=name, signatures={"serving_default": ModelSignature("serving_default", spec, spec)})


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        (model(None, 2), f"""curl -d '{{"instances":[[0.0,0.0]]}}' {URL}/v1/models/m:predict"""),
        (
            model(None, 224, 224, 3),
            """python3 -c 'import json; print(json.dumps({"instances": [[[[0.0] * 3] * 224] * 224]}))' | """
            f"curl -d @- {URL}/v1/models/m:predict",
        ),
        (model(None, 1, name="a b"), f"""curl -d '{{"instances":[[0.0]]}}' {URL}/v1/models/a%20b:predict"""),
    ],
)
def test_the_command_calls_the_model_or_shows_what_it_takes(asked: Any, command: str) -> None:
    assert call_of(asked, URL) == command


def test_where_a_key_is_needed_the_command_sends_it() -> None:
    assert call_of(model(None, 1), URL, key=True).startswith('curl -H "x-api-key: $KEY" -d ')


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", URL), ("::", URL), ("10.0.0.7", "http://10.0.0.7:8501"), ("::1", "http://[::1]:8501")],
)
def test_the_first_ready_model_that_can_be_called_is_told_once(
    host: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    class Repository:
        def names(self) -> list[str]:
            return ["gone", "m", "n"]

        def resolve(self, name: str) -> Any:
            if name == "gone":
                raise ModelNotFound(name)
            return model(None, 1, name=name)

    lines = FirstLines(Settings(host=host), "a list", lambda: cast(Any, Repository()))
    lines.listens(8501)
    lines.begin()
    hear = lines.subscriptions[ModelStateChanged]
    for name, state in (("m", VersionState.START), ("gone", VersionState.AVAILABLE), ("m", VersionState.AVAILABLE)):
        hear(ModelStateChanged(name, 1, state))
    hear(ModelStateChanged("n", 1, VersionState.AVAILABLE))
    first, *others = caplog.messages
    assert first.endswith(f"serves the models of a list; pages: {url}/docs (API), /health, /metrics")
    call = f"""Call it: curl -d '{{"instances":[[0.0]]}}' {quote(f"{url}/v1/models/m:predict")}"""
    assert others == ["Models: gone, m, n", call]


@pytest.mark.parametrize(
    ("more", "pages"),
    [
        ({}, "https://localhost:8501"),
        ({"operator_port": 8510}, "https://localhost:8510"),
        ({"operator_port": 8510, "operator_port_tls": "off"}, "http://localhost:8510"),
    ],
)
def test_with_tls_urls_are_of_https_and_pages_of_the_port_that_has_them(
    more: dict[str, Any], pages: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lines = FirstLines(Settings(tls_certificate="c", tls_key="k", **more), "a list", lambda: cast(Any, None))
    lines.listens(8501)
    lines.begin()
    assert lines.url == "https://localhost:8501"
    assert caplog.messages[0].endswith(f"; pages: {pages}/docs (API), /health, /metrics")
