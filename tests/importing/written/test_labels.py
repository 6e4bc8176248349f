"""Labels of an import: the forms of files, and that there is one for each class."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.core.inference import ModelSignature, TensorSpec
from app.importing.order import CannotImport
from app.importing.written.labels import read_label_file, write_labels
from app.loading.labels import read_labels

_SIGNATURES = {
    "serving_default": ModelSignature(
        "serving_default",
        {"x": TensorSpec("x", np.dtype(np.float32), (None, 2))},
        {"p": TensorSpec("p", np.dtype(np.float32), (None, 3))},
    )
}

_NAMES = ["cat", "dog, big", "Größe"]

_FORMS = {
    "lines": "cat\ndog, big\nGröße\n",
    "lines of Windows": "\ufeffcat\r\ndog, big\r\nGröße\r\n",
    "numbers and commas": '0,cat\n1,"dog, big"\n2,Größe',
    "titles": 'id,name\n1,"dog, big"\n0,cat\n2,Größe\n',
    "numbers and spaces": "0 cat\n1 dog, big\n2 Größe\n",
    "a list": json.dumps(_NAMES),
    "names by number": json.dumps({"1": "dog, big", "0": "cat", "2": "Größe"}),
    "numbers by name": json.dumps({"dog, big": 1, "cat": 0, "Größe": 2}),
    "Keras' file of ImageNet": json.dumps({str(n): [f"n0144{n}", name] for n, name in enumerate(_NAMES)}),
    "a configuration": json.dumps({"model_type": "bert", "id2label": dict(enumerate(_NAMES))}),
    "another configuration": json.dumps({"label2id": {name: n for n, name in enumerate(_NAMES)}}),
}


@pytest.mark.parametrize("form", _FORMS)
def test_each_form_gives_the_names_in_the_order_of_classes(form: str, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text(_FORMS[form], encoding="utf-8")
    names = read_label_file(tmp_path / "labels")
    assert names == _NAMES
    assert write_labels(tmp_path, names, _SIGNATURES, asked=True) == ["3 labels for output 'p'"]
    assert list(read_labels(tmp_path)) == _NAMES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no name for class 0"),
        (b"cat\n\ndog", "has no name for class 1"),
        (b"[1, 2]", 'has another form; expected a list of names, {"0": "cat"} or {"cat": 0}'),
        (b'{"0": "cat", "2": "dog"}', "has 2 names, but none for class 1"),
        (b'{"0": {"a": 1}}', "has another form"),
        (b'{"id2label": "x"}', "has another form"),
        (b'["cat", ""]', "has no name for class 1"),
        (b"[" * 100_000, "is no JSON"),
        (b"{", "is no JSON"),
        (b"\xff\xfe", "cannot be read"),
        (b"a\n" * (1 << 22) + b"b", "is longer than 8,388,608 bytes"),
    ],
)
def test_another_form_is_told(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(content)
    with pytest.raises(CannotImport) as raised:
        read_label_file(tmp_path / "labels")
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"--labels {tmp_path}")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotImport, match="cannot be read"):
        read_label_file(tmp_path / "labels")


def test_labels_that_do_not_fit_are_told_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(CannotImport) as raised:
        write_labels(tmp_path, ["a", "b"], _SIGNATURES, asked=True)
    assert str(raised.value) == "--labels: 2 labels, but no output has 2 classes; the outputs are p float32[?,3]"
    (note,) = write_labels(tmp_path, ["a", "b"], _SIGNATURES, asked=False)
    assert (
        note
        == "labels of the source are left out: 2 labels, but no output has 2 classes; the outputs are p float32[?,3]"
    )
    assert write_labels(tmp_path, [], _SIGNATURES, asked=False) == []
    assert not list(tmp_path.iterdir())
