import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.repository.disk import disk_layout
from app.repository.disk.disk_layout import IgnoredFolder, missing_graph, scan_model, version_files, version_number
from app.repository.model_config import ModelConfig
from app.repository.model_sources import ModelsFolder
from tests.repository.fakes import add, remove


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("1", 1),
        ("00001", 1),
        ("0", 0),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        ("9" * 5000, None),
        ("0" * 5000 + "7", 7),
        ("-1", None),
        ("+1", None),
        ("1_0", None),
        ("v1", None),
        ("0.1", None),
        ("tmp", None),
        ("١", None),
        ("1\n", None),
        ("", None),
    ],
)
def test_only_whole_numbers_name_a_version(name: str, number: int | None) -> None:
    assert version_number(name) == number


@given(st.integers(0, 2**63 - 1), st.integers(0, 8))
def test_leading_zeros_do_not_change_the_number(number: int, zeros: int) -> None:
    assert version_number("0" * zeros + str(number)) == number


def test_models_are_found_with_their_versions(tmp_path: Path) -> None:
    one = add(tmp_path, "a", "00001")
    two = add(tmp_path, "a", 2)
    (tmp_path / "b" / "3").mkdir(parents=True)
    (tmp_path / "b" / "3" / "saved_model.pbtxt").touch()
    (tmp_path / "a" / "train.py").touch()
    (tmp_path / "README.md").touch()
    configs = {name: ModelConfig(name, tmp_path / name) for name in "ab"}
    models = {"a": {1: one, 2: two}, "b": {3: tmp_path / "b" / "3"}}
    assert ModelsFolder(tmp_path).scan() == disk_layout.DiskLayout(configs, models)


def test_what_is_ignored_says_why(tmp_path: Path) -> None:
    add(tmp_path, "m", 1)
    (tmp_path / "m" / "v2").mkdir()
    (tmp_path / "m" / "3").mkdir()
    (tmp_path / "m" / ".4.partial").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "saved_model.pb").touch()
    (tmp_path / "flat_pipeline").mkdir()
    (tmp_path / "flat_pipeline" / "pipeline.yaml").touch()
    found = ModelsFolder(tmp_path).scan()
    assert set(found.models) == {"m"}
    assert set(found.models["m"]) == {1}
    assert found.ignored == {
        IgnoredFolder(tmp_path / "m" / "v2", "its name is not a version: a whole number from 0 to 2^63-1"),
        IgnoredFolder(tmp_path / "m" / "3", "it holds no saved_model.pb, model.tflite or pipeline.yaml"),
        IgnoredFolder(tmp_path / "empty", "it holds no version folder, named by a whole number"),
        IgnoredFolder(
            tmp_path / "flat", "it holds saved_model.pb itself; a models folder is <name>/<version>/saved_model.pb"
        ),
        IgnoredFolder(
            tmp_path / "flat_pipeline",
            "it holds pipeline.yaml itself; a models folder is <name>/<version>/pipeline.yaml",
        ),
    }


def test_a_model_whose_name_is_not_unicode_is_ignored(tmp_path: Path) -> None:
    """Else no JSON document could list the models."""
    add(tmp_path, "m", 1)
    add(tmp_path, os.fsdecode(b"\xff"), 1)
    found = ModelsFolder(tmp_path).scan()
    assert list(found.configs) == list(found.models) == ["m"]
    assert found.ignored == {IgnoredFolder(tmp_path / os.fsdecode(b"\xff"), "its name is not valid UTF-8")}


def test_of_two_folders_with_one_number_the_last_sorted_counts(tmp_path: Path) -> None:
    first, last = add(tmp_path, "m", "001"), add(tmp_path, "m", "1")
    found = scan_model(tmp_path / "m")
    assert found.versions == {1: last}
    assert found.ignored == (IgnoredFolder(first, "1 has the same version number 1 and is used instead"),)


def test_an_incomplete_twin_does_not_count(tmp_path: Path) -> None:
    first = add(tmp_path, "m", "001")
    (tmp_path / "m" / "1").mkdir()
    assert scan_model(tmp_path / "m").versions == {1: first}


def test_a_model_with_only_incomplete_versions_is_known(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    assert ModelsFolder(tmp_path).scan().models == {"m": {}}


def test_a_link_to_a_folder_is_a_folder_and_a_dead_one_is_nothing(tmp_path: Path) -> None:
    real = add(tmp_path / "store", "m", 1)
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "1").symlink_to(real)
    (tmp_path / "models" / "m" / "2").symlink_to(tmp_path / "nowhere")
    assert set(ModelsFolder(tmp_path / "models").scan().models["m"]) == {1}


def test_a_missing_models_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ModelsFolder(tmp_path / "nowhere").scan()


def test_one_unreadable_model_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)

    def reject_a(folder: Path) -> disk_layout.ModelFolder:
        if folder.name == "a":
            raise OSError(5, "Input/output error")
        return scan_model(folder)

    monkeypatch.setattr(disk_layout, "scan_model", reject_a)
    found = ModelsFolder(tmp_path).scan()
    assert set(found.models) == {"b"}
    assert found.unreadable == {"a"}
    assert found.ignored == {IgnoredFolder(tmp_path / "a", "cannot be read: Input/output error")}


def test_a_version_lacks_its_graph_until_it_is_there(tmp_path: Path) -> None:
    assert missing_graph(tmp_path) == "it holds no saved_model.pb, model.tflite or pipeline.yaml"
    (tmp_path / "saved_model.pb").touch()
    assert missing_graph(tmp_path) == ""


def test_the_fingerprint_changes_with_every_change(tmp_path: Path) -> None:
    version = add(tmp_path, "m", 1)
    seen = [version_files(version).fingerprint]
    assert version_files(version).fingerprint == seen[0]

    def changed() -> None:
        assert version_files(version).fingerprint not in seen
        seen.append(version_files(version).fingerprint)

    (version / "saved_model.pb").write_bytes(b"longer than before")
    changed()
    os.utime(version / "saved_model.pb", ns=(0, 1))
    changed()
    (version / "variables").mkdir()
    (version / "variables" / "variables.index").touch()
    changed()
    (version / "variables" / "variables.index").unlink()
    (version / "dangling").symlink_to(tmp_path / "nowhere")
    assert version_files(version).fingerprint == seen[2]
    remove(tmp_path, "m", 1)
    assert version_files(version).fingerprint == frozenset()


@pytest.mark.parametrize(
    ("file", "folder", "told"),
    [
        ("mine/model.keras", "mine", "it holds model.keras: 'ferry import {0}/mine/model.keras {0}/mine'"),
        ("mine/1/model.keras", "mine/1", "it holds model.keras: 'ferry import {0}/mine/1/model.keras {0}/mine'"),
        ("mine/MLmodel", "mine", "it is a model of another format: 'ferry import {0}/mine {0}/mine'"),
        ("mine/1/tf_model.h5", "mine/1", "it is a model of another format: 'ferry import {0}/mine/1 {0}/mine'"),
        (
            "mine.keras",
            "mine.keras",
            "it is a file, not a model's folder: 'ferry import {0}/mine.keras {0}/mine'",
        ),
    ],
)
def test_the_reason_names_the_command_that_imports_what_lies_there(
    tmp_path: Path, file: str, folder: str, told: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    layout = ModelsFolder(tmp_path).scan()
    reason = told.format(tmp_path) + " makes a version of it"
    assert layout.ignored == {IgnoredFolder(tmp_path / folder, reason)}
    if folder != file:
        assert layout.incomplete == {"mine": {1: reason}}


@pytest.mark.parametrize("file", ["model.pkl", "x.weights.h5", "notes.txt", "fingerprint.pb"])
def test_other_files_are_not_told_as_importable(tmp_path: Path, file: str) -> None:
    (tmp_path / "mine" / "1").mkdir(parents=True)
    (tmp_path / "mine" / "1" / file).touch()
    (tmp_path / file).touch()
    layout = ModelsFolder(tmp_path).scan()
    assert [each.path for each in layout.ignored] == [tmp_path / "mine" / "1"]
    assert "import" not in layout.incomplete["mine"][1]
