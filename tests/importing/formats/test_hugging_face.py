"""The reader of snapshots of Hugging Face, as far as it goes without their libraries."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.importing.formats.hugging_face import read
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.repository.disk.importable import format_of
from tests.importing.formats.proven import proven
from tests.support.savedmodels import make_half_plus_two


def snapshot(folder: Path, config: dict[str, object] | None = None, *weights: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    for name in weights:
        (folder / name).write_bytes(b"weights")
    return folder


def source_of(path: Path) -> Source:
    assert format_of(path) == "hugging_face"
    return read(path, ImportOrder(str(path), ""))


def test_a_savedmodel_in_a_snapshot_is_taken(tmp_path: Path) -> None:
    make_half_plus_two(snapshot(tmp_path / "snapshot", {}) / "saved_model" / "1")
    assert "serving_default" in proven(source_of(tmp_path / "snapshot"), tmp_path / "1")


def test_links_to_the_files_of_all_snapshots_are_followed(tmp_path: Path) -> None:
    blobs = tmp_path / "models--me--half" / "blobs"
    blobs.mkdir(parents=True)
    folder = snapshot(tmp_path / "models--me--half" / "snapshots" / "abc", {})
    make_half_plus_two(folder / "saved_model" / "1")
    graph = folder / "saved_model" / "1" / "saved_model.pb"
    graph.rename(blobs / "0123")
    graph.symlink_to("../../../../blobs/0123")
    version = tmp_path / "1"
    proven(source_of(folder), version)
    assert not (version / "saved_model.pb").is_symlink()


def test_a_link_out_of_the_cache_is_refused(tmp_path: Path) -> None:
    folder = snapshot(tmp_path / "models--me--half" / "snapshots" / "abc", {}, "tf_model.h5")
    (folder / "vocab.txt").symlink_to("/etc/hostname")
    with pytest.raises(CannotImport, match="a link out of"):
        source_of(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_of_pytorch_say_how_they_become_those_of_tensorflow(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotImport, match=rf"its weights are {name} \(PyTorch.*from_pt=True"):
        source_of(snapshot(tmp_path, {}, name))


def test_code_in_a_snapshot_is_refused(tmp_path: Path) -> None:
    config = {"architectures": ["Bert"], "auto_map": {"AutoModel": "code.Model"}}
    with pytest.raises(CannotImport, match=r"code in the snapshot \(auto_map\); --trust runs it"):
        source_of(snapshot(tmp_path, config, "tf_model.h5"))


@pytest.mark.skipif(find_spec("transformers") is not None, reason="the error is of an installation without it")
def test_without_transformers_the_command_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotImport, match="pip install 'transformers<5' tf_keras"):
        source_of(snapshot(tmp_path, {"architectures": ["DistilBertModel"]}, "tf_model.h5"))


@pytest.mark.parametrize(("text", "error"), [("{", "no JSON"), ("[1]", "no JSON object"), ("[" * 100_000, "no JSON")])
def test_a_broken_configuration_is_refused(tmp_path: Path, text: str, error: str) -> None:
    folder = snapshot(tmp_path, None, "tf_model.h5")
    (folder / "config.json").write_text(text)
    with pytest.raises(CannotImport, match=error):
        source_of(folder)


def test_weights_of_keras_without_their_class_say_so(tmp_path: Path) -> None:
    with pytest.raises(CannotImport, match=r"config\.json names no class of keras-hub"):
        source_of(snapshot(tmp_path, {"module": "mine"}, "model.weights.h5"))
