"""Lines of English, Python and C, read from the Python installation that runs this: nothing is downloaded."""

from __future__ import annotations

import ast
import io
import re
import sysconfig
import tokenize
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics

import numpy as np

LABELS = ("english", "python", "c")
SHORTEST, LONGEST = 8, 120

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_SENTENCE = re.compile(r"[A-Z][\w'(]*(?:[ ][^\s{}<>=|*`]+){4,}[.!?]")
_NOT_STANDARD = {"site-packages", "test", "tests", "lib2to3", "idlelib"}


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    label: int


def english(prose: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", prose):
        yield from filter(_SENTENCE.fullmatch, _SENTENCE_END.split(" ".join(paragraph.split())))


def python(source: str) -> Iterator[str]:
    """Lines of code: no comment lines, nothing of strings that span lines (docstrings among them)."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    strings = (token for token in tokens if token.type == tokenize.STRING)
    inside = {number for token in strings for number in range(token.start[0], token.end[0] + 1)}
    for number, line in enumerate(source.splitlines(), start=1):
        if number not in inside and not line.lstrip().startswith("#"):
            yield line.strip()


def c(source: str) -> Iterator[str]:
    yield from (line.strip() for line in _COMMENT.sub("", source).splitlines())


def docstrings(source: str) -> str:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, documented))
    return "\n\n".join(ast.get_docstring(node) or "" for node in nodes)


def documents() -> Iterator[tuple[str, str, Iterator[str]]]:
    """Every source, as its name, its label and its lines."""
    for topic, prose in sorted(topics.topics.items()):
        yield topic, "english", english(prose)
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library)
        if _NOT_STANDARD.isdisjoint(name.parts):
            source = path.read_text(encoding="utf-8", errors="replace")
            yield str(name), "english", english(docstrings(source))
            yield str(name), "python", python(source)
    for path in sorted(Path(sysconfig.get_path("include")).rglob("*.h")):
        yield path.name, "c", c(path.read_text(encoding="utf-8", errors="replace"))


def split_lines(per_label: int, held_per_label: int, random: np.random.Generator) -> tuple[list[Line], list[Line]]:
    """Lines to train on and lines held out, the same number of each label.

    Whole documents are held out (one in five, by a checksum of the name), and no
    text appears twice, so a held-out line is neither a copy nor a neighbour of one seen.
    """
    kept: dict[tuple[bool, int], list[Line]] = {}
    seen: set[str] = set()
    for name, label, texts in documents():
        held = zlib.crc32(name.encode()) % 5 == 0
        for text in texts:
            if SHORTEST <= len(text.encode()) <= LONGEST and text not in seen:
                seen.add(text)
                kept.setdefault((held, LABELS.index(label)), []).append(Line(text, LABELS.index(label)))
    return _sample(kept, False, per_label, random), _sample(kept, True, held_per_label, random)


def _sample(
    kept: dict[tuple[bool, int], list[Line]], held: bool, per_label: int, random: np.random.Generator
) -> list[Line]:
    chosen = [
        kept[held, label][index]
        for label in range(len(LABELS))
        for index in random.choice(len(kept[held, label]), per_label, replace=False)
    ]
    return [chosen[index] for index in random.permutation(len(chosen))]
