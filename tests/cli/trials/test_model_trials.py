"""`ferry check` with real models in real child processes. The oracle is what a server logs, and the model itself."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import tensorflow as tf

from app.cli.trials.model_trials import ModelTrials
from app.cli.trials.trial_messages import TrialVersion
from app.config.settings import PREFIX
from tests.support import tf1_savedmodels
from tests.support.forks.programs import run_program
from tests.support.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[3]


def save(folder: Path, body: Callable[[Any], Any]) -> Path:
    module = tf.Module()
    module.answer = tf.function(body, input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.answer})
    return folder


def endless(x: Any) -> dict[str, Any]:
    return {"y": tf.while_loop(lambda y: tf.reduce_sum(y) < 1, lambda y: (y * 0,), (x * 0,))[0]}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save(folder / "good" / "1", lambda x: {"y": x + 1})
    save(folder / "drops" / "1", lambda x: {"y": tf.boolean_mask(x, x[:, 0] > 0.5)})
    save(folder / "endless" / "1", endless)
    broken = tf.Module()
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
    broken.table = table
    broken.answer = tf.function(
        lambda x: {"y": table.lookup(x)}, input_signature=[tf.TensorSpec([None], tf.string, name="x")]
    )
    tf.saved_model.save(broken, str(folder / "good2" / "1"), signatures={"serving_default": broken.answer})
    return folder


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


def version(models: Path, name: str) -> TrialVersion:
    return TrialVersion(name, 1, str(models / name / "1"))


def children() -> set[int]:
    """The children of this process that load models, or will."""
    tasks = Path("/proc/self/task").iterdir()
    found = {int(child) for task in tasks for child in (task / "children").read_text().split()}
    return {child for child in found if b"trial_process" in Path(f"/proc/{child}/cmdline").read_bytes()}


def test_what_a_server_would_log_is_told_of_one_version_after_another(models: Path) -> None:
    with closing(ModelTrials(HANG_S)) as trials:
        good, other = trials.of(version(models, "good")), trials.of(version(models, "good2"))
        (child,) = children()
        drops = trials.of(version(models, "drops"))
        assert children() == {child}, "one child serves all"
    assert good.found == ["Model good version 1, signature 'serving_default': requests share calls, proven by graph"]
    assert other.found == ["Model good2 version 1, signature 'serving_default': requests share calls, proven by graph"]
    assert [*good.faults, *good.notes, *other.faults, *other.notes, *drops.faults] == []
    line, of_the_call = drops.found
    assert line.startswith("Model drops version 1, signature 'serving_default': each request runs alone: output 'y': ")
    assert of_the_call.startswith("signature 'serving_default': output 'y' has 0 rows, not 3: it does not follow")
    assert drops.rowless == {("serving_default", "y"): "'y' has 0 rows, not 3"}
    assert not children()


def test_how_a_version_was_loaded_is_told_with_what_a_server_would_log(models: Path, tmp_path: Path) -> None:
    tf1_savedmodels.make_counter(tmp_path / "counter" / "1")
    with closing(ModelTrials(HANG_S)) as trials:
        found = trials.of(version(tmp_path, "counter"))
        good = trials.of(version(models, "good"))
    assert found.faults == []
    (told,) = [line for line in found.found if "in a session" in line]
    assert told.startswith("Model counter version 1: it runs in a session, as ")
    assert not [line for line in good.found if "session" in line]


def test_what_cannot_be_loaded_is_told_and_the_next_version_is_loaded(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "good" / "1", tmp_path / "bad" / "1")
    (tmp_path / "bad" / "1" / "saved_model.pb").write_bytes(b"\xff" * 100)
    with closing(ModelTrials(HANG_S)) as trials:
        bad, good = trials.of(version(tmp_path, "bad")), trials.of(version(models, "good"))
    (fault,) = bad.faults
    assert fault.startswith("bad/1 cannot be loaded: ")
    assert (len(good.found), good.faults) == (1, [])


def test_a_signal_that_ends_the_child_is_named_with_its_last_step_and_the_next_version_gets_another(
    models: Path,
) -> None:
    def abort() -> None:
        wait_until(lambda: any(_is_at_work(child) for child in children()))
        for child in children():
            os.kill(child, signal.SIGABRT)

    with closing(ModelTrials(HANG_S)) as trials:
        killer = Thread(target=abort)
        killer.start()
        ended = trials.of(version(models, "endless"))
        killer.join()
        good = trials.of(version(models, "good"))
    (fault,) = ended.faults
    assert fault.startswith("the process that loads it ended by SIGABRT; its last step: ")
    assert (len(good.found), good.faults) == (1, [])


def _is_at_work(child: int) -> bool:
    return Path(f"/proc/{child}/maps").read_bytes().count(b"libtensorflow") > 0


def test_a_version_that_takes_too_long_is_a_fault_and_its_child_is_ended(models: Path) -> None:
    with closing(ModelTrials(0.5)) as trials:
        (fault,) = trials.of(version(models, "endless")).faults
        assert not children()
    assert fault.startswith("it took longer than 0.5 s (--limit-s); its last step: ")


# --- the command ---


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "app", "check", *map(str, arguments)]


def test_the_command_tells_it_and_its_exit_code_says_whether_all_would_be_served(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "drops", tmp_path / "models" / "drops")
    draft = tmp_path / "draft" / "pipeline.yaml"
    draft.parent.mkdir()
    draft.write_text("steps:\n  a: {model: drops, inputs: {x: x}}\noutputs: {y: a.y}\n")
    served = run_program("-m", "app", "check", "models", cwd=tmp_path)
    assert served.returncode == 0, served.stderr
    assert "  Model drops version 1, signature 'serving_default': each request runs alone" in served.stdout
    failing = run_program("-m", "app", "check", "draft/pipeline.yaml", "--models", "models", cwd=tmp_path)
    assert failing.returncode == 1
    assert failing.stderr == (
        "draft/pipeline.yaml: step 'a': output 'y' has 0 rows, not 3: it does not follow the rows of its inputs\n"
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_the_command_is_ended_its_child_ends_and_no_file_is_left(
    models: Path, tmp_path: Path, how: signal.Signals
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        command(models / "endless"), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: bool(_children_of(process.pid)) and all(map(_is_at_work, _children_of(process.pid))))
        (child,) = _children_of(process.pid)
        process.send_signal(how)
        assert process.wait(HANG_S) != 0
        wait_until(lambda: not _lives(child))
    finally:
        process.kill()
        process.wait()
    assert not list(temporary.iterdir())


def _children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return re.sub(r"^.*\) ", "", state)[:1] != "Z"
