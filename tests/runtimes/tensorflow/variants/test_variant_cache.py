import os
from pathlib import Path

import pytest

from app.core.values.value_kinds import Reach
from app.runtime import VariantChoice
from app.runtimes.tensorflow.variants.variant_cache import (
    FoundVariants,
    cache_key,
    content_digest,
    default_folder,
    recall,
    remember,
)

CHOICES = [VariantChoice("f", 1, "xla", 1.5, Reach.FINITE), VariantChoice("f", 8, "plain", 1.0, Reach.ANY)]


def model(folder: Path, graph: bytes = b"graph", variables: bytes = b"checksums") -> Path:
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(graph)
    (folder / "variables" / "variables.index").write_bytes(variables)
    return folder


def test_what_is_remembered_is_recalled(tmp_path: Path) -> None:
    assert recall(tmp_path / "new", "key") is None
    for short in (True, False):
        remember(tmp_path / "new", "key", FoundVariants(CHOICES, short))
        assert recall(tmp_path / "new", "key") == FoundVariants(CHOICES, short)
    assert recall(tmp_path / "new", "other") is None
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["key.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "[[1]]",
        '[false, [["f", "one", "xla", 1]]]',
        "[false, null]",
        '[false, [["f", 1, "xla", 1.5]]]',
        '[false, [["f", 1, "xla", 1.5, 9]]]',
        '[["f", 1, "xla", 1.5, 0]]',
        "\x00",
    ],
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "key.json").write_text(text)
    assert recall(tmp_path, "key") is None


def test_a_folder_that_cannot_be_written_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    remember(tmp_path / "file", "key", FoundVariants(CHOICES))
    assert recall(tmp_path / "file", "key") is None


def test_the_fingerprint_follows_content_and_circumstances_not_the_place(tmp_path: Path) -> None:
    here = cache_key(content_digest(model(tmp_path / "a")), tensorflow="1", sizes=[1, 2])
    assert cache_key(content_digest(model(tmp_path / "b")), sizes=[1, 2], tensorflow="1") == here
    assert cache_key(content_digest(tmp_path / "a"), tensorflow="2", sizes=[1, 2]) != here
    assert cache_key(content_digest(tmp_path / "a"), tensorflow="1", sizes=[1]) != here
    assert cache_key(content_digest(model(tmp_path / "c", graph=b"other")), tensorflow="1", sizes=[1, 2]) != here
    assert cache_key(content_digest(model(tmp_path / "d", variables=b"other")), tensorflow="1", sizes=[1, 2]) != here


def test_a_model_without_variables_has_a_cache_key(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    assert len(cache_key(content_digest(tmp_path))) == 64


def test_the_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "ferry"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_folder() == Path("/home/ann/.cache/ferry")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert default_folder() is None
