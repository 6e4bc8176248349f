from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.core.inference import ModelSignature
from app.loading.labels import FILE_NAME, read_labels, with_labels
from tests.support.protocol_fakes import specs


def write(version: Path, content: bytes) -> Path:
    file = version / FILE_NAME
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return version


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"", ()),
        (b"cat\ndog\n", ("cat", "dog")),
        (b"cat\r\ndog", ("cat", "dog")),
        ("tench, Tinca tinca\néléphant\n".encode(), ("tench, Tinca tinca", "éléphant")),
        (b"cat\n\ndog\n", ("cat", "", "dog")),
    ],
)
def test_a_line_for_each_class(tmp_path: Path, content: bytes, labels: tuple[str, ...]) -> None:
    assert read_labels(write(tmp_path, content)) == labels


def test_a_version_without_labels_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_labels(tmp_path) == ()
    assert not caplog.records


@pytest.mark.parametrize(("content", "told"), [(b"\xff\xfe", "utf-8"), (b"x\n" * (1 << 22) + b"x", "longer than")])
def test_labels_that_cannot_be_read_are_left_out_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, told: str
) -> None:
    assert read_labels(write(tmp_path, content)) == ()
    (record,) = caplog.records
    assert told in record.getMessage()
    assert "is ignored, so classifications have no labels" in record.getMessage()


def test_a_folder_in_place_of_the_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir(parents=True)
    assert read_labels(tmp_path) == ()


@pytest.mark.parametrize(
    ("dtype", "shape", "labelled"),
    [
        ("float32", (None, 2), True),
        ("int64", (None, 1, 2, 1), True),
        ("float32", (None, 3), False),
        ("float32", (None, None), False),
        ("float32", None, False),
        ("string", (None, 2), False),
        ("bool", (None, 2), False),
        ("float32", (None,), False),
    ],
)
def test_outputs_with_a_number_for_each_label_have_them(dtype: Any, shape: Any, labelled: bool) -> None:
    signature = ModelSignature("s", specs(x=("float32", (None, 5))), specs(y=(dtype, shape)))
    labels = ("cat", "dog")
    assert with_labels({"s": signature}, labels)["s"].labels == ({"y": labels} if labelled else {})
    assert with_labels({"s": signature}, ()) == {"s": signature}


def test_a_model_without_batches_has_labels_for_all_of_an_output() -> None:
    signature = ModelSignature("s", specs(x=("float32", (5,))), specs(y=("float32", (2,))))
    assert with_labels({"s": signature}, ("cat", "dog"))["s"].labels == {"y": ("cat", "dog")}
