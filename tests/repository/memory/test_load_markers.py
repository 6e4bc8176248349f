from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from app.repository.memory.load_markers import LoadMarkers

FILES = frozenset({("saved_model.pb", 10, 1)})
OTHERS = frozenset({("saved_model.pb", 10, 2)})
MB = 2.0**20


def markers(folder: Path | None, limit: float = 100 * MB, host: str = "pod") -> LoadMarkers:
    return LoadMarkers(folder, lambda: limit, host)


def killed(folder: Path, *models: str, tight: bool = True, version: int = 1) -> Path:
    """The marks of a server that was killed while it loaded these, and began with those of an earlier one."""
    after = folder / "after"
    after.mkdir(exist_ok=True)
    server = LoadMarkers(shutil.copytree(after, folder / "server", dirs_exist_ok=True), lambda: 100 * MB, "pod")
    for model in models:
        with server.loading(model, version, FILES, tight=tight):
            for mark in (folder / "server").iterdir():
                shutil.copy(mark, after)  # nobody holds a lock on the copy
    shutil.rmtree(folder / "server")
    return after


def test_a_load_that_ended_leaves_no_mark_however_it_ended(tmp_path: Path) -> None:
    with markers(tmp_path).loading("m", 1, FILES, tight=True):
        assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ValueError, match="broken"), markers(tmp_path).loading("m", 1, FILES, tight=True):
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []


def test_the_version_that_ended_the_server_is_left_out_and_no_other(tmp_path: Path) -> None:
    found = markers(killed(tmp_path, "m"))
    assert "killed while it loaded this version" in found.why_left_out("m", 1, FILES)
    assert "it had 100 MB" in found.why_left_out("m", 1, FILES)
    assert "load the model by POST /v2/repository/models/NAME/load" in found.why_left_out("m", 1, FILES)
    assert found.why_left_out("m", 2, FILES) == found.why_left_out("other", 1, FILES) == ""
    assert not found.loads_alone("m", 1)


def test_it_stays_left_out_at_further_starts(tmp_path: Path) -> None:
    folder = killed(tmp_path, "m")
    assert all(markers(folder).why_left_out("m", 1, FILES) for _ in range(2))


def test_it_is_tried_again_with_other_files_with_more_memory_and_when_asked_for(tmp_path: Path) -> None:
    folder = killed(tmp_path, "m")
    asked = markers(shutil.copytree(folder, tmp_path / "asked"))
    asked.forget("m")
    assert asked.why_left_out("m", 1, FILES) == ""
    assert markers(folder, 200 * MB).why_left_out("m", 1, FILES) == ""
    changed = markers(killed_again := folder)
    assert changed.why_left_out("m", 1, OTHERS) == ""
    assert list(killed_again.iterdir()) == []


def test_changed_files_of_a_version_say_nothing_of_another_version(tmp_path: Path) -> None:
    for version in (1, 2):
        for _ in range(2):
            folder = killed(tmp_path, "m", version=version)
    found = markers(folder)
    assert found.why_left_out("m", 1, OTHERS) == ""
    assert "killed while it loaded this version" in found.why_left_out("m", 2, FILES)


def test_of_several_each_is_loaded_alone_and_none_is_left_out(tmp_path: Path) -> None:
    found = markers(killed(tmp_path, "a", "b"))
    assert found.why_left_out("a", 1, FILES) == ""
    assert found.loads_alone("a", 1)
    assert found.loads_alone("b", 1)
    with found.loading("a", 1, FILES, tight=True):
        pass
    assert not found.loads_alone("a", 1)


def test_a_living_server_and_another_host_do_not_count(tmp_path: Path) -> None:
    with markers(tmp_path / "living").loading("m", 1, FILES, tight=True):
        assert markers(tmp_path / "living").why_left_out("m", 1, FILES) == ""
    elsewhere = markers(killed(tmp_path, "m"), host="another")
    assert elsewhere.why_left_out("m", 1, FILES) == ""


def test_a_folder_that_cannot_be_written_is_told_once_and_loads_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    found = markers(tmp_path / "file" / "below")
    for _ in range(2):
        with found.loading("m", 1, FILES, tight=True):
            pass
    assert len(caplog.records) == 1
    assert repr(found) == "<LoadMarkers in None, left: []>"


def test_one_that_had_plenty_of_memory_is_loaded_alone_and_left_out_after_a_second_time(tmp_path: Path) -> None:
    folder = killed(tmp_path, "m", tight=False)
    found = markers(folder)
    assert found.why_left_out("m", 1, FILES) == ""
    assert found.loads_alone("m", 1)
    again = markers(killed(tmp_path, "m", tight=False))
    assert "killed while it loaded this version" in again.why_left_out("m", 1, FILES)
    assert not again.loads_alone("m", 1)


def test_of_several_the_one_that_ends_the_server_again_is_left_out_and_the_other_is_loaded(tmp_path: Path) -> None:
    killed(tmp_path, "a", "b")
    found = markers(killed(tmp_path, "a"))
    assert found.why_left_out("a", 1, FILES)
    assert found.why_left_out("b", 1, FILES) == ""
    assert found.loads_alone("b", 1)


def test_what_is_under_way_when_the_server_is_told_to_end_is_not_to_blame(tmp_path: Path) -> None:
    server = markers(tmp_path)
    files = len(os.listdir("/proc/self/fd"))
    with server.loading("m", 1, FILES, tight=True):
        server.close()
        assert list(tmp_path.iterdir()) == []
        assert len(os.listdir("/proc/self/fd")) == files
    with server.loading("m", 1, FILES, tight=True):
        assert list(tmp_path.iterdir()) == []


def test_the_reason_names_the_mark_that_keeps_it_left_out(tmp_path: Path) -> None:
    folder = killed(tmp_path, "m")
    (mark,) = folder.iterdir()
    assert str(mark) in markers(folder).why_left_out("m", 1, FILES)
    mark.unlink()
    assert markers(folder).why_left_out("m", 1, FILES) == ""


def test_a_mark_of_another_server_of_the_host_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = markers(tmp_path), markers(tmp_path)
    with first.loading("m", 1, FILES, tight=True):
        (mark,) = tmp_path.iterdir()
        text = mark.read_text()
        with second.loading("m", 1, FILES, tight=True):
            pass
        assert mark.read_text() == text
    assert not caplog.records
