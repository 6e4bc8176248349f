"""A look at storage that may hang, for code that runs before the repository's storage processes exist."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Found = TypeVar("Found")


def found_within(limit_s: float, look: Callable[[], Found]) -> Found | None:
    """The result of `look`; None if it raised OSError or took longer: a server whose storage hangs starts nevertheless.

    The thread of a look that takes longer is left behind, as a read of a stale mount cannot be ended.
    """
    found: list[Found] = []

    def note() -> None:
        with suppress(OSError):
            found.append(look())

    looking = threading.Thread(target=note, name="look at the models folder", daemon=True)
    looking.start()
    looking.join(limit_s)
    return found[0] if found else None
