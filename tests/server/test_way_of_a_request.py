"""docs/architecture.md, "The way of a request": its table of functions is what a request runs through."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import httpx
import pytest

from app.server.single_process import serve
from tests.deploy.manifests import ROOT
from tests.server.test_server import settings
from tests.server.test_single_process import _surroundings, terminate, while_serving  # noqa: F401 - a fixture
from tests.support.processes import free_port
from tests.support.waiting import HANG_S

SECTION = (ROOT / "docs/architecture.md").read_text().partition("\n## The way of a request\n")[2].partition("\n## ")[0]
STEPS = re.findall(r"^\| `(app/\S+)` \| `([\w.]+)` \|", SECTION, re.MULTILINE)

#: The test's runtime is not TensorFlow.
TENSORFLOW = "app/runtimes/tensorflow/"


class Profile:
    """Notes the functions of the table as they are called, by whatever thread, while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.called: list[tuple[str, str]] = []
        self._wanted = {(str(ROOT / file), name): (file, name) for file, name in STEPS}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.on and event == "call":
            step = self._wanted.get((frame.f_code.co_filename, frame.f_code.co_qualname))
            if step is not None:
                self.called.append(step)


@pytest.fixture
def profile() -> Iterator[Profile]:
    made = Profile()
    before = sys.getprofile()
    threading.setprofile(made)
    sys.setprofile(made)
    yield made
    threading.setprofile(before)
    sys.setprofile(before)


def test_a_request_runs_through_the_functions_of_the_page(tmp_path: Path, profile: Profile) -> None:
    port = free_port()

    answers = []

    def act(client: httpx.Client) -> None:
        profile.on = True  # from the first request on: after one, shadow checks call functions of the table, too
        answers.append(client.post("/v1/models/m:predict", json={"instances": [[1, 2]]}).json())
        profile.on = False
        terminate()

    thread = while_serving(f"http://127.0.0.1:{port}", act)
    serve(settings(tmp_path, host="127.0.0.1", rest_port=port, max_inline_ms=0))
    thread.join(HANG_S)
    assert answers == [{"predictions": [[2.0, 4.0]]}]
    steps = [step for step in STEPS if not step[0].startswith(TENSORFLOW)]
    assert len(steps) > 15
    assert list(dict.fromkeys(profile.called)) == list(dict.fromkeys(steps))
