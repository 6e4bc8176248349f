"""Which of a model's versions are served: pure functions of the numbers there are."""

from __future__ import annotations

from collections.abc import Callable, Collection

#: From the versions that can be served to those that shall be.
VersionPolicy = Callable[[Collection[int]], set[int]]


def latest(available: Collection[int]) -> set[int]:
    """The newest by number; nothing of nothing."""
    return {max(available)} if available else set()
