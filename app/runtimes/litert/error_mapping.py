"""The mapping of LiteRT's exceptions to Ferry's errors. LiteRT has no codes: texts say what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory, ServingError

#: The most characters of LiteRT's messages. Chosen.
_MAX_CHARACTERS = 300

# Places in LiteRT's source, and in the graph.
_SOURCE = re.compile(r"\S+\.(?:cc|h):\d+ ")
_NODE = re.compile(r"\s*Node number \d+ \((\w+)\) failed to (?:prepare|invoke)\.?")

_NO_MEMORY = re.compile(r"bad_alloc|[Ff]ailed to allocate|out of memory|[Cc]annot allocate", re.ASCII)

#: Operations that a file needs and LiteRT does not have.
_UNKNOWN = (
    (re.compile(r"Encountered unresolved custom op: ([^\n.]+)"), "a custom operation"),
    (re.compile(r"Didn't find op for builtin opcode '?([^\n.]+)"), "an operation"),
)


def call_error(error: Exception) -> ServingError:
    """The error for the caller whose call raised `error`.

    A file was loaded and called before, so what LiteRT refuses is the request: indices, sizes that do not fit.
    """
    text = one_line(error)
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return OutOfMemory(text)
    return InvalidRequest(f"LiteRT cannot compute this: {text}")


def load_failure(path: Path, reason: str) -> InferenceFailed:
    """The error for the model in folder `path` that could not be loaded."""
    return InferenceFailed(f"{'/'.join(path.parts[-2:])} cannot be loaded: {reason}")


def why_not_loaded(error: Exception) -> str:
    """The reason why LiteRT cannot execute a file, by its error."""
    for pattern, kind in _UNKNOWN:
        if found := pattern.search(str(error)):
            return f"it needs {kind} that LiteRT does not have: {found[1].strip()}"
    return f"LiteRT cannot execute it: {one_line(error)}"


def is_unknown_operation(error: Exception) -> bool:
    return any(pattern.search(str(error)) for pattern, _ in _UNKNOWN)


def one_line(error: Exception) -> str:
    """LiteRT's text in one line, without places in its source; operations stay."""
    text = _SOURCE.sub("", str(error))
    operations = list(dict.fromkeys(name for name in _NODE.findall(text) if "Delegate" not in name))
    text = " ".join(_NODE.sub(". ", text).split()).strip(" .") or type(error).__name__
    text = text if not operations else f"{text} ({', '.join(operations)})"
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
