"""One live server with every feature enabled, and what each client got from it. Every script runs once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.official_clients import savedmodels as more_savedmodels
from tests.official_clients.environment import CLIENTS, Answers, ask, require
from tests.official_clients.requests import COMPLEX, REQUESTS
from tests.support import savedmodels
from tests.support.processes import ROOT, ServerProcess, free_port, serving

MADE = {
    "classic": more_savedmodels.make_classic,
    "every_dtype": savedmodels.make_every_dtype,
    "image": more_savedmodels.make_image,
    "half_plus_two": savedmodels.make_half_plus_two,
    "json_dtypes": more_savedmodels.make_json_dtypes,
    "scalar": savedmodels.make_scalar,
    "several_inputs": savedmodels.make_several_inputs,
    "several_signatures": savedmodels.make_several_signatures,
    "simple": more_savedmodels.make_simple,
    "simple_string": more_savedmodels.make_simple_string,
    "slow": savedmodels.make_slow,
    "spare": savedmodels.make_half_plus_two,
    "unknown_inner": savedmodels.make_unknown_inner,
    "v2_dtypes": more_savedmodels.make_v2_dtypes,
    "v2_scalars": more_savedmodels.make_v2_scalars,
}


HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the clients only test_environment.py runs in this folder: one line says that nothing is tried."""
    if CLIENTS.exists() or not any(item.path == HERE / "test_environment.py" for item in items):
        return
    untried = [item for item in items if HERE in item.path.parents and item.path.name != "test_environment.py"]
    config.hook.pytest_deselected(items=untried)
    items[:] = [item for item in items if item not in untried]


@dataclass(frozen=True)
class Live:
    """A running server; its addresses are host and port without a scheme, as clients expect them."""

    server: ServerProcess
    rest: str
    grpc: str
    socket: str
    folder: Path

    def ask(self, script: str, **more: Any) -> Answers:
        addresses = {"rest": self.rest, "grpc": self.grpc, "socket": self.socket}
        requests = {name: request.asked for name, request in {**REQUESTS, **more.pop("requests", {})}.items()}
        slow_steps = 2 * savedmodels.SLOW_STEPS_A_SECOND
        return ask(script, {**addresses, "requests": requests, "slow_steps": slow_steps, **more}, self.folder)


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    require(CLIENTS)
    folder = tmp_path_factory.mktemp("clients")
    for name in ("digits", "text"):
        shutil.copytree(ROOT / "models" / name / "1", folder / "models" / name / "1")
    for name, make in MADE.items():
        make(folder / "models" / name / "1")
    grpc_port, socket = free_port(), str(folder / "socket")
    settings = {"grpc_port": grpc_port, "grpc_unix_socket": socket, "max_batch_size": 16}
    settings |= {"model_control": "explicit", "allow_shared_memory": True}
    # Answers are compared bit for bit. A faster variant that is found meanwhile changes the last bit of numbers, and so
    # do calls of other sizes, when costs say that these are quicker: so there is one size.
    settings |= {"execution_variant": "plain", "batch_sizes": "16"}
    with serving(folder / "models", folder / "log", **settings) as server:
        yield Live(server, server.url.removeprefix("http://"), f"127.0.0.1:{grpc_port}", socket, folder)
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="session")
def stubs(live: Live) -> Answers:
    return live.ask("serving_stubs", requests=COMPLEX)


@pytest.fixture(scope="session")
def triton(live: Live) -> Answers:
    return live.ask("triton_inference")


@pytest.fixture(scope="session")
def triton_server(live: Live) -> Answers:
    return live.ask("triton_server")


@pytest.fixture(scope="session")
def triton_examples(live: Live) -> Answers:
    return live.ask("triton_examples")


@pytest.fixture(scope="session")
def kserve(live: Live) -> Answers:
    return live.ask("kserve_clients")


@pytest.fixture(scope="session")
def all_answers(stubs: Answers, triton: Answers, kserve: Answers) -> Callable[[str], Any]:
    """The answer to the case of this name, from the script that has it."""
    return lambda name: next(answers[name] for answers in (stubs, triton, kserve) if name in answers)
