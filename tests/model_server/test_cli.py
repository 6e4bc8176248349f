import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from app import __version__
from app.config.settings import Settings
from app.frontends.process_arguments import ProcessArguments
from app.model_server import __main__, engine_process, frontend_process
from app.model_server.cli import run
from app.model_server.flags import FLAGS
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels
from app.transports.grpc.options import GrpcOptions
from tests.deploy.pages.commands import commands, words

Served = list[tuple[Settings, WatchedModels, GrpcOptions]]
PATH = "/usr/bin/ferry-model-server"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL_NAME", "MODEL_BASE_PATH", "FERRY_STRICT_SHAPES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """What a server would be started with."""
    starts: Served = []

    def serve(settings: Settings, models: WatchedModels, grpc: GrpcOptions) -> int:
        starts.append((settings, models, grpc))
        return 5

    monkeypatch.setattr("app.server.single_process.serve", serve)
    return starts


def test_flags_reach_the_server_and_its_code_is_the_exit_code(served: Served) -> None:
    assert run([PATH, "--port=1", "--rest_api_port", "2", "--model_base_path=/m", "--grpc_channel_arguments=a=3"]) == 5
    ((settings, models, grpc),) = served
    assert (settings.rest_port, settings.rest, settings.strict_shapes) == (2, True, False)
    assert models.configs == [ModelConfig("default", Path("/m"))]
    assert (grpc.port, list(grpc.arguments)) == (1, [("a", 3)])


def test_the_command_of_the_migration_page_starts_a_server(served: Served) -> None:
    (command,) = commands("docs/migrate-from-tensorflow-serving.md", "ferry-model-server")
    run([PATH, *words(command)])
    ((settings, models, grpc),) = served
    assert (settings.rest, settings.rest_port, grpc.port) == (True, 8501, 8500)
    assert models.configs == [ModelConfig("digits", Path("/models/digits"))]


def test_flags_beat_the_images_variables(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_NAME", "n")
    run([PATH])
    run([PATH, "--rest_api_port=9", "--model_name=other"])
    assert [(settings.rest_port, models.configs) for settings, models, _ in served] == [
        (8501, [ModelConfig("n", Path("/models/n"))]),
        (9, [ModelConfig("other", Path("/models/n"))]),
    ]


def test_ferrys_own_settings_are_reached_by_the_environment(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_STRICT_SHAPES", "true")
    monkeypatch.setenv("FERRY_MAX_BATCH_SIZE", "7")
    run([PATH, "--model_base_path=/m"])
    settings = served[0][0]
    assert (settings.strict_shapes, settings.max_batch_size) == (True, 7)


def test_frontends_get_an_engine_that_knows_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    supervised: list[tuple[object, ...]] = []

    def supervise(settings: Settings, *given: object) -> int:
        supervised.append((settings.frontends, *given))
        return 5

    monkeypatch.setattr("app.frontends.supervisor.supervise", supervise)
    monkeypatch.setenv("FERRY_FRONTENDS", "2")
    assert run([PATH, "--model_base_path=/m", "--rest_api_port=1"]) == 5
    modules = ("app.model_server.engine_process", "app.model_server.frontend_process")
    assert supervised == [(2, *modules, {"model_base_path": "/m", "rest_api_port": 1})]


def test_an_engine_and_a_frontend_read_the_flags_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    for module in ("engine.engine_process", "frontend.frontend_process"):
        monkeypatch.setattr(f"app.frontends.{module}.serve", lambda *given: started.append(given) or 5)
    flags = {"model_base_path": str(tmp_path), "model_name": "n", "grpc_channel_arguments": "a=3"}
    told = ProcessArguments(Settings(frontends=2), [3], flags=flags)
    assert [engine_process.main(told), frontend_process.main(told)] == [5, 5]
    ((arguments, models, engine_grpc), (_, grpc)) = started
    assert (arguments.settings.frontends, arguments.sockets) == (2, [3])
    assert models.configs == [ModelConfig("n", tmp_path)]
    assert [list(each.arguments) for each in (engine_grpc, grpc)] == [[("a", 3)]] * 2


def test_each_flag_that_does_nothing_is_said_in_one_line(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    idle = {name: flag for name, flag in FLAGS.items() if flag.idle}
    run([PATH, "--model_base_path=/m", *(f"--{name}={flag.default}" for name, flag in idle.items())])
    lines = [f"Warning: --{name} does nothing here: {flag.meaning}" for name, flag in idle.items()]
    assert capsys.readouterr().err.splitlines() == lines
    assert len(served) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--modle_name=m"], 2, "ferry-model-server: unknown argument: --modle_name=m; did you mean --model_name?"),
        ([], 1, "Failed to start server. Error: give --model_config_file, or --model_base_path with --model_name"),
        (
            ["--model_config_file=/none"],
            1,
            "Failed to start server. Error: [Errno 2] No such file or directory: '/none'",
        ),
        (
            ["--model_base_path=/m", "--use_alts_credentials"],
            1,
            "Failed to start server. Error: --use_alts_credentials is not supported; --ssl_config_file gives TLS",
        ),
        (["install-alias"], 2, "usage: ferry-model-server install-alias FOLDER"),
    ],
)
def test_what_is_wrong_is_one_line_and_starts_nothing(
    arguments: list[str], code: int, text: str, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([PATH, *arguments]) == code
    assert capsys.readouterr().err == text + "\n"
    assert not served


def test_a_wrong_setting_of_ferrys_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_MAX_BATCH_SIZE", "no")
    assert run([PATH, "--model_base_path=/m"]) == 1
    assert not served


def test_a_wrong_list_of_models_is_told_in_tensorflow_servings_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "models.config"
    file.write_text("not a list {")
    assert run([PATH, f"--model_config_file={file}"]) == 1
    assert "Error parsing text-format tensorflow.serving.ModelServerConfig" in capsys.readouterr().err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["/bin/tensorflow_model_server", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: tensorflow_model_server [--flag=value ...]\n")
    assert all(f"  --{name}=" in shown for name in FLAGS)
    assert run(["/x/__main__.py", "--version"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"TensorFlow ModelServer: Ferry {__version__}\nTensorFlow Library: 2.")


def test_the_alias_is_a_link_to_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "ferry-model-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folder = tmp_path / "bin"
    folder.mkdir()
    assert run([str(program), "install-alias", str(folder)]) == 0
    assert (folder / "tensorflow_model_server").readlink() == program
    assert run([str(program), "install-alias", str(folder)]) == 1
    assert capsys.readouterr().err == f"{folder}/tensorflow_model_server: File exists\n"


@pytest.mark.usefixtures("signals_restored")
def test_the_console_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [PATH, "--version"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 0
    assert "Ferry" in capsys.readouterr().out

    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    signal.raise_signal(signal.SIGTERM)
    assert codes == [0], "a process that still imports ends at once"
