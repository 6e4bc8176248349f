"""Folders that hold no model that can be loaded. `make_...(path)` as in savedmodels."""

from __future__ import annotations

from pathlib import Path

from tests.support.savedmodels import make_image_net


def make_nothing(path: Path) -> None:
    """The folder does not even exist."""


def make_empty_folder(path: Path) -> None:
    path.mkdir(parents=True)


def make_corrupted_graph(path: Path) -> None:
    make_image_net(path)
    graph = path / "saved_model.pb"
    graph.write_bytes(b"\xff" + graph.read_bytes()[:100])


def make_empty_graph(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "saved_model.pb").touch()


def make_without_variables(path: Path) -> None:
    make_image_net(path)
    for file in (path / "variables").iterdir():
        file.unlink()


def make_half_copied_variables(path: Path) -> None:
    make_image_net(path)
    values = path / "variables" / "variables.data-00000-of-00001"
    values.write_bytes(values.read_bytes()[:20])
