"""The models folder of each kind of path that `ferry serve PATH` gets; tests/cli/test_import.py serves some."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from app.cli.served_path import served_path
from app.config.sources import SettingsError
from app.importing.order import CannotImport
from tests.support.savedmodels import make_half_plus_two


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ferry" / "imported"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "version"
    make_half_plus_two(folder)
    return folder


def _pipeline(folder: Path) -> Path:
    folder.mkdir()
    (folder / "pipeline.yaml").write_text("steps: []\n")
    return folder


def _served(path: Path) -> list[str]:
    """The versions in the models folder, and that each of them is what it stands for."""
    with served_path(path) as folder:
        return sorted(str(each.relative_to(folder)) for each in folder.glob("*/*") if each.is_dir())


@pytest.mark.parametrize(
    ("place", "asked", "versions"),
    [
        ("half", "half", ["half/1"]),
        ("half/7", "half/7", ["half/7"]),
        ("half/7", "half", ["half/7"]),
        ("half/7", "half/7/saved_model.pb", ["half/7"]),
        ("models/half/7", "models", ["half/7"]),
    ],
)
def test_what_is_servable_is_served_where_it_lies(
    tmp_path: Path, made: Path, place: str, asked: str, versions: list[str]
) -> None:
    shutil.copytree(made, tmp_path / place)
    assert _served(tmp_path / asked) == versions
    assert not list((tmp_path / "cache").rglob("*.pb"))  # links alone


def test_a_pipeline_is_served_as_a_model(tmp_path: Path) -> None:
    assert _served(_pipeline(tmp_path / "steps")) == ["steps/1"]
    assert _served(tmp_path / "steps" / "pipeline.yaml") == ["steps/1"]


def test_a_path_of_nothing_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no file or folder"), served_path(tmp_path / "nothing"):
        pass


def test_without_a_home_there_is_no_cache(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("app.cli.served_path.default_folder", lambda: None)
    with pytest.raises(SettingsError, match="there is no cache folder"), served_path(made):
        pass


def _text(folder: Path) -> Path:
    (folder / "notes.txt").write_text("no model")
    return folder / "notes.txt"


def _pickle_alone(folder: Path) -> Path:
    (folder / "only").mkdir()
    (folder / "only" / "model.pkl").write_bytes(b"\x80\x04.")
    return folder / "only"


def _python_function(folder: Path) -> Path:
    """A SavedModel without signatures, whose function calls Python."""
    module = tf.Module()
    module.f = tf.function(lambda x: tf.numpy_function(lambda y: y, [x], tf.float32), [tf.TensorSpec([None])])
    tf.saved_model.save(module, str(folder / "python"), signatures={})
    return folder / "python"


@pytest.mark.parametrize(
    ("make", "said"),
    [(_text, "nothing that can be imported"), (_pickle_alone, "pickle"), (_python_function, "Python")],
)
def test_what_cannot_be_imported_is_told_and_leaves_nothing(
    tmp_path: Path, cache: Path, make: Callable[[Path], Path], said: str
) -> None:
    with pytest.raises(CannotImport, match=said), served_path(make(tmp_path)):
        pass
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_an_option_that_the_text_names_is_one_of_ferry_import(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        tf.identity(2.0 * tf.compat.v1.placeholder(tf.float32, [None], "x"), "y")
    definition = graph.as_graph_def()
    next(node for node in definition.node if node.op == "Mul").input[0] = "y"  # a circle: no tensor is an output
    (tmp_path / "graph.pb").write_bytes(definition.SerializeToString())
    with (
        pytest.raises(CannotImport, match=r"--outputs.*; the option is one of 'ferry import .*graph\.pb'"),
        served_path(tmp_path / "graph.pb"),
    ):
        pass
