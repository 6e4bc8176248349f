"""Names of classes: read from the file of `--labels` in forms that people have, written as `assets.extra/labels.txt`.

Forms: a name in each line, in the order of classes; `0,cat` or `0 cat` in each line, with or without a line of titles;
JSON: a list, {"0": "cat"}, {"cat": 0}, or an object that has one of these as `id2label` or `label2id`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.core.inference import ModelSignature
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.loading.labels import FILE_NAME, with_labels

#: The largest file of labels. Chosen, as that of the file that is written.
_MOST_BYTES = 1 << 23

#: A number, what separates it, and a name.
_NUMBERED = re.compile(r"(\d{1,9})(?:\s*[,;:]\s*|\s+)(.+)")


def labels_of(source: Source, order: ImportOrder) -> Sequence[str]:
    """The names of the order's file, else those that the source knows. Raises CannotImport."""
    return read_label_file(Path(order.labels)) if order.labels else source.labels


def read_label_file(file: Path) -> list[str]:
    """The names in the order of classes. Raises CannotImport: the file has none, or not one for each class."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        text = content.decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _no_labels(file, f"cannot be read: {error}") from None
    if len(content) > _MOST_BYTES:
        raise _no_labels(file, f"is longer than {_MOST_BYTES:,} bytes")
    names = _from_json(file, text) if text[:1] in {"[", "{"} else _from_lines(text)
    if not names or not all(names):
        raise _no_labels(file, f"has no name for class {names.index('') if names else 0}")
    return names


def write_labels(
    version: Path, labels: Sequence[str], signatures: Mapping[str, ModelSignature], *, asked: bool
) -> list[str]:
    """Writes the names into a version whose model has so many classes.

    Args:
        asked: whether the caller gave the names; those of a source that do not fit are left out.

    Returns: remarks for the line of the result.

    Raises CannotImport: no output has so many classes.
    """
    if not labels:
        return []
    fitting = [output for each in with_labels(signatures, labels).values() for output in each.labels]
    if fitting:
        file = version / FILE_NAME
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{' '.join(label.split())}\n" for label in labels), encoding="utf-8")
        return [f"{len(labels)} labels for output {fitting[0]!r}"]
    outputs = [f"{name} {spec}" for each in signatures.values() for name, spec in each.outputs.items()]
    problem = f"{len(labels)} labels, but no output has {len(labels)} classes; the outputs are "
    problem += ", ".join(dict.fromkeys(outputs))
    if asked:
        raise CannotImport(f"--labels: {problem}")
    return [f"labels of the source are left out: {problem}"]


def _from_lines(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return _numbered(lines) or _numbered(lines[1:]) or lines


def _numbered(lines: Sequence[str]) -> list[str]:
    """The names behind numbers 0 to n - 1; empty if lines have other forms."""
    found = [_NUMBERED.fullmatch(line) for line in lines]
    pairs = {int(each[1]): each[2].strip('"') for each in found if each}
    if len(pairs) < len(lines) or sorted(pairs) != list(range(len(lines))):
        return []
    return [pairs[number] for number in range(len(lines))]


# --- JSON ---


def _from_json(file: Path, text: str) -> list[str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_labels(file, f"is no JSON: {error}") from None
    if isinstance(document, dict):
        document = next((document[key] for key in ("id2label", "label2id") if document.get(key)), document)
        document = _by_class(file, document)
    if not isinstance(document, list) or not all(isinstance(each, str | list) for each in document):
        raise _no_labels(file, 'has another form; expected a list of names, {"0": "cat"} or {"cat": 0}')
    return [_name(each) for each in document]


def _by_class(file: Path, document: Any) -> list[Any]:
    """The names of {"0": "cat"} or {"cat": 0}, in the order of classes."""
    if not isinstance(document, dict):
        return [None]
    if all(type(value) is int for value in document.values()):
        document = {str(number): name for name, number in document.items()}
    if missing := [number for number in map(str, range(len(document))) if number not in document]:
        raise _no_labels(file, f"has {len(document)} names, but none for class {missing[0]}")
    return [document[str(number)] for number in range(len(document))]


def _name(value: Any) -> str:
    """Keras' file of ImageNet has two names for each class: an identifier and a word."""
    return " ".join(str(value[-1] if isinstance(value, list) and value else value or "").split())


def _no_labels(file: Path, problem: str) -> CannotImport:
    return CannotImport(f"--labels {file} {problem}")
