"""Version policies: the choice of a model's versions that are served.

A model's policy is in its ModelConfig (model_config.py): from the list of models, or NEWEST in a models folder.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import nlargest


@dataclass(frozen=True, slots=True)
class Latest:
    """The policy that chooses the `count` versions with the highest numbers."""

    count: int = 1

    def __call__(self, available: Collection[int]) -> set[int]:
        return set(nlargest(self.count, available))


@dataclass(frozen=True, slots=True)
class Specific:
    """The policy that chooses the versions with these numbers, as far as they exist."""

    versions: frozenset[int]

    def __call__(self, available: Collection[int]) -> set[int]:
        return set(self.versions.intersection(available))


@dataclass(frozen=True, slots=True)
class All:
    """The policy that chooses all versions."""

    def __call__(self, available: Collection[int]) -> set[int]:
        return set(available)


NEWEST = Latest()

#: All comes first: a policy is read from JSON, where an object without fields could be Latest, too.
VersionPolicy = All | Latest | Specific
