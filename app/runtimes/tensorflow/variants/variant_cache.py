"""The chosen variants on disk, so that the next start need not search."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

from app.core.values.value_kinds import Reach
from app.runtime import VariantChoice

logger = logging.getLogger(__name__)

#: Raise it when choices of earlier Ferry versions must not be used any more.
_FORMAT = 5


class FoundVariants(NamedTuple):
    """The choices of a search. short: it left steps out for lack of time."""

    choices: Sequence[VariantChoice]
    short: bool = False


def content_digest(model: Path) -> str:
    """A digest of a model's content. Its files are read at each call.

    The index of the variables holds a checksum of each, so the variables themselves need not be read.
    """
    digest = hashlib.sha256()
    for name in ("saved_model.pb", "variables/variables.index"):
        file = model / name
        digest.update(file.read_bytes() if file.is_file() else b"")
        digest.update(b"\0")
    return digest.hexdigest()


def cache_key(content: str, **circumstances: Any) -> str:
    """The key for a model's content, by its digest, and the circumstances of a search."""
    described = json.dumps([_FORMAT, content, circumstances], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()


def recall(folder: Path, key: str) -> FoundVariants | None:
    """The choices of an earlier search; None if there are none."""
    try:
        short, rows = json.loads((folder / f"{key}.json").read_text())
        choices = [
            VariantChoice(str(name), int(size), str(variant), float(speed_up), Reach(reach))
            for name, size, variant, speed_up, reach in rows
        ]
        return FoundVariants(choices, bool(short))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        logger.debug("The remembered choice of variants cannot be read, so variants are searched again: %s", error)
        return None


def remember(folder: Path, key: str, found: FoundVariants) -> None:
    """Writes the whole file or nothing. If the folder cannot be written to, the next start searches again."""
    content = [found.short, [astuple(choice) for choice in found.choices]]
    file = folder / f"{key}.json"
    unfinished = file.with_suffix(f".{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(content))
        unfinished.replace(file)
    except OSError as error:
        logger.debug("The choice of variants cannot be remembered, so the next start searches again: %s", error)


def default_folder() -> Path | None:
    """`ferry` in the user's cache folder: XDG_CACHE_HOME or ~/.cache. None for a user without a home."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = named if named.is_absolute() else Path(os.path.expanduser("~/.cache"))
    return base / "ferry" if base.is_absolute() else None
