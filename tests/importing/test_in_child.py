"""An import in its child process: its result, its limits, and that nothing is left, whatever ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from app.importing import in_child
from app.importing.in_child import import_in_child, memory_for
from app.importing.order import CannotImport, ImportOrder
from app.importing.result import ImportResult
from tests.importing.child_work import RESULT
from tests.support.waiting import wait_until

Begin = Callable[..., ImportResult]


def _program(work: str) -> str:
    return (
        "import sys; sys.path[:] = sys.argv[1:]; from app.importing.child import main; "
        f"from tests.importing import child_work; main(child_work.{work})"
    )


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """A function that begins an import whose child does a work of child_work.py."""
    source = tmp_path / "source.keras"
    source.write_bytes(b"model")

    def begin(work: str, report: Callable[[str], None] = lambda _: None, **order: object) -> ImportResult:
        monkeypatch.setattr(in_child, "_PROGRAM", _program(work))
        given = ImportOrder(str(source), str(tmp_path / "models" / "mine" / "1"), memory_bytes=1 << 30)
        fields = {name: getattr(given, name) for name in ImportOrder.__dataclass_fields__}
        return import_in_child(ImportOrder(**{**fields, **order}), "keras", report)  # type: ignore[arg-type]  # of any fields

    return begin


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_version_is_written_with_nothing_beside_it(begin: Begin, tmp_path: Path) -> None:
    stages: list[str] = []
    assert begin("writes", stages.append) == RESULT
    assert _files(tmp_path) == [
        "models", "models/mine", "models/mine/1", "models/mine/1/saved_model.pb", "models/mine/1/variables",
        "source.keras",
    ]  # fmt: skip
    assert stages == ["it writes", "the version is written"]


def test_a_version_that_came_meanwhile_is_kept(begin: Begin, tmp_path: Path) -> None:
    def another_comes(stage: str) -> None:
        if stage == "the version is written":
            (tmp_path / "models" / "mine" / "1").mkdir(parents=True)
            (tmp_path / "models" / "mine" / "1" / "file").write_text("another's")

    with pytest.raises(CannotImport, match=r"mine/1 exists; the next free version is .*mine/2"):
        begin("writes", another_comes)
    assert _files(tmp_path / "models") == ["mine", "mine/1", "mine/1/file"]


@pytest.mark.parametrize(
    ("work", "text"),
    [
        ("refuses", r"source\.keras of format keras has two lines"),
        ("raises", r"KeyError: 'x{300,}…"),
        ("crashes", r"the process that imports it ended by SIGSEGV; its last step: it reads the layers"),
        ("exits", r"ended with exit code 7; its last step: the process starts; its last words: Check failed: x == y"),
        ("allocates", r"it needs more than 1\.0 GiB of memory \(--memory-gib\)"),
        ("writes_much", r"OSError: \[Errno 27\] File too large"),
    ],
)
def test_each_failure_is_one_sentence_and_leaves_nothing(begin: Begin, tmp_path: Path, work: str, text: str) -> None:
    with pytest.raises(CannotImport, match=text) as caught:
        begin(work)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert _files(tmp_path) == ["source.keras"]


def test_an_import_that_takes_too_long_is_ended_with_all_that_it_started(begin: Begin, tmp_path: Path) -> None:
    before = _running("sleep 1000")
    with pytest.raises(CannotImport, match=r"longer than 2 s \(--limit-s\); its last step: it takes long"):
        begin("takes_long", limit_s=2.0)
    assert _files(tmp_path) == ["source.keras"]
    wait_until(lambda: _running("sleep 1000") <= before)


def test_resident_memory_is_limited_where_the_kernel_does_not_limit_it(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_child, "resident_bytes", lambda _: 2.0**31)
    with pytest.raises(CannotImport, match=r"more than 1\.0 GiB of memory"):
        begin("takes_long")
    assert _files(tmp_path) == ["source.keras"]


def test_the_child_has_no_network_and_writes_nowhere_else(begin: Begin, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("as it was")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with pytest.raises(CannotImport, match=r"open ways: (none|a file elsewhere)$") as caught:
            begin("connects", samples=str(tmp_path / "socket"), labels=str(elsewhere))
    if "elsewhere" not in str(caught.value):  # the kernel has Landlock
        assert elsewhere.read_text() == "as it was"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_import_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    parent = _parent(tmp_path)
    child = _child_of(parent, tmp_path)
    parent.send_signal(number)
    assert parent.wait(30) == 128 + number
    assert _files(tmp_path) == ["source.keras"]
    wait_until(lambda: not Path(f"/proc/{child}").exists())


def test_the_child_ends_with_a_parent_that_is_killed_and_the_next_import_removes_what_is_left(
    tmp_path: Path, begin: Begin
) -> None:
    parent = _parent(tmp_path)
    child = _child_of(parent, tmp_path)
    parent.kill()
    parent.wait(30)
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    assert any(".ferry-import-" in name for name in _files(tmp_path))
    begin("writes")
    assert not any(".ferry-import-" in name for name in _files(tmp_path))


def test_an_import_leaves_the_staging_folder_of_another_that_runs(tmp_path: Path, begin: Begin) -> None:
    parent = _parent(tmp_path)
    try:
        _child_of(parent, tmp_path)
        begin("writes")
        assert any(".ferry-import-" in name for name in _files(tmp_path))
    finally:
        parent.terminate()
        parent.wait(30)
    assert not any(".ferry-import-" in name for name in _files(tmp_path))


def test_memory_follows_the_size_of_the_source_up_to_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("a", "b"):
        (tmp_path / "folder" / name).write_bytes(bytes(1 << 20))
    monkeypatch.setattr(in_child, "available_bytes", lambda: 1e15)
    size = (tmp_path / "folder").stat().st_size + (2 << 20)
    assert memory_for(tmp_path / "folder") == (6 << 30) + 12 * size
    monkeypatch.setattr(in_child, "available_bytes", lambda: 1e9)
    assert memory_for(tmp_path / "folder") == 9e8


def test_the_parent_imports_neither_tensorflow_nor_keras() -> None:
    program = (
        "import sys; import app.importing.in_child, app.importing.import_cache, app.cli.served_path; "
        "own = {f'app.importing.{each}' for each in ('child', 'proof', 'formats')}; "
        "heavy = {'tensorflow', 'keras', 'h5py'} | own; "
        "sys.exit(','.join(heavy & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_imports_nothing_of_imports_and_keras_only_as_tensorflow_does() -> None:
    program = (
        "import sys; import app.server.single_process, app.frontends.supervisor, app.frontends.engine.engine_process; "
        "from app.runtimes.tensorflow.start import load_libraries, preload; load_libraries(); "
        "early = [name for name in sys.modules if name.startswith('keras')]; "
        "preload(); assert 'app.runtimes.tensorflow.tensorflow_runtime' in sys.modules; "
        "sys.exit(','.join([*early, *(name for name in sys.modules if name.startswith('app.importing'))]) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _parent(folder: Path) -> subprocess.Popen[bytes]:
    """A process that imports, and whose child takes long."""
    (folder / "source.keras").write_bytes(b"model")
    program = f"""
        from app.importing import in_child
        from app.importing.order import ImportOrder
        in_child._PROGRAM = {_program("takes_long")!r}
        order = ImportOrder({str(folder / "source.keras")!r}, {str(folder / "models/mine/1")!r}, memory_bytes=1 << 30)
        in_child.import_in_child(order, "keras", lambda stage: None)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], env=environment)


def _child_of(parent: subprocess.Popen[bytes], folder: Path) -> int:
    """The child's process, once it has written something."""
    wait_until(lambda: any(name.endswith("version/saved_model.pb") for name in _files(folder)))
    return int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0])


def _running(command: str) -> int:
    return int(subprocess.run(["pgrep", "-fc", command], check=False, capture_output=True, text=True).stdout or 0)
