"""Operations that no library here has, and libraries that end a process: everybody who asks is told, others serve."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tensorflow as tf

from tests.runtimes.tensorflow.operation_libraries.test_needed import asking_for
from tests.support.forks.programs import run_program
from tests.support.processes import serving
from tests.support.savedmodels import make_half_plus_two

WHY = (
    "brand/1 cannot be loaded: its operation BrandNewOp is neither in TensorFlow "
    f"{'.'.join(tf.__version__.split('.')[:2])} nor in a library that Ferry knows; name the library that has it in the "
    "setting operation_libraries"
)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    make_half_plus_two(folder / "half" / "1")
    asking_for(folder / "brand" / "1", "BrandNewOp")
    return folder


def test_the_status_and_the_log_say_what_is_missing_and_others_serve(models: Path) -> None:
    with serving(models, models.parent / "log") as server:
        (status,) = server.client.get("/v1/models/brand").json()["model_version_status"]
        assert (status["state"], status["status"]["error_message"]) == ("END", WHY)
        assert WHY in server.client.get("/readyz").text
        assert WHY in server.client.get("/v2/models/brand").text
        assert WHY in server.log.read_text()
        reply = server.client.post("/v1/models/half:predict", json={"instances": [1.0]})
        assert reply.json() == {"predictions": [2.5]}


@pytest.mark.parametrize("command", [["check"], ["check", "--quick"], ["inspect"]], ids=" ".join)
def test_commands_say_what_is_missing(models: Path, command: list[str]) -> None:
    done = run_program("-m", "app", *command, str(models / "brand"))
    assert done.returncode == 1
    assert WHY in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_whose_library_ends_processes_does_not_start_and_says_which(models: Path) -> None:
    (models.parent / "crashing_operations.py").write_text("import os\nos.abort()\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(models.parent),
        "FERRY_OPERATION_LIBRARIES": "crashing_operations",
        "FERRY_MODELS": str(models),
        "FERRY_HOST": "127.0.0.1",
        "FERRY_REST_PORT": "0",
        "FERRY_GRPC_PORT": "0",
    }
    done = run_program("-m", "app", "serve", environment=environment)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "crashing_operations" in line]
    assert line.endswith("operation_libraries: crashing_operations ends the process that loads it, by SIGABRT")
    assert "Traceback" not in done.stderr


_OWN_LIBRARY = """
import sys
from importlib.util import find_spec
from pathlib import Path
from app.runtime import RuntimeOptions
from app.runtimes.tensorflow.operation_libraries.shared_libraries import LIBRARIES_HERE
from app.runtimes.tensorflow.start import start

folder = Path(find_spec("tensorflow_text").submodule_search_locations[0])
start(RuntimeOptions(operation_libraries=(str(folder / "python" / "ops" / "_ngrams_op.so"),)))
assert LIBRARIES_HERE.operations == {"TFText>NgramsStringJoin"}, LIBRARIES_HERE.operations
assert not [name for name in sys.modules if name.startswith("tensorflow_text")]
"""


def test_a_shared_library_is_loaded_by_its_path() -> None:
    done = run_program("-c", _OWN_LIBRARY)
    assert done.returncode == 0, done.stderr
