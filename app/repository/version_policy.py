"""Version policies: the choice of a model's versions that are served.

A model's policy is in its ModelConfig (model_config.py): from the list of models, or NEWEST in a models folder.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import nlargest


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest few by number."""

    count: int = 1

    def __call__(self, available: Collection[int]) -> set[int]:
        return set(nlargest(self.count, available))


@dataclass(frozen=True, slots=True)
class Specific:
    """The named versions, as far as they exist."""

    versions: frozenset[int]

    def __call__(self, available: Collection[int]) -> set[int]:
        return set(self.versions.intersection(available))


@dataclass(frozen=True, slots=True)
class All:
    """All versions."""

    def __call__(self, available: Collection[int]) -> set[int]:
        return set(available)


NEWEST = Latest()

#: The one that uses fewest fields comes first, as a policy is read from JSON.
VersionPolicy = All | Latest | Specific
