"""What a request needs, and what a caller may do and how much: plain values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf

from app.core.errors import NotAllowed


class Permission(Enum):
    """What callers may be allowed."""

    INFER = "infer"  # predict, classify, regress, infer, streams
    METADATA = "metadata"  # what is served and how: states, signatures, statistics, batching, the API's description
    ADMINISTRATION = "administration"  # load, unload, reload, tune, register shared memory
    METRICS = "metrics"  # the metrics page and /health, which name every model


@dataclass(frozen=True, slots=True)
class Need:
    """What a request needs.

    Attributes:
        permission: None if everybody may send it.
        model: that it names; empty if it names none, or its message does, which is not read yet.
        every_model: it shows something of all models.
    """

    permission: Permission | None
    model: str = ""
    every_model: bool = False


#: Whether the server lives and is ready is for everybody: who asks that has no key, and learns no name.
OPEN = Need(None)

#: What nobody has defined. So a new route that nobody thought of is closed to all but those who may see everything.
UNKNOWN = Need(Permission.METADATA, every_model=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a caller may do.

    Attributes:
        models: patterns of names (`*`, `?`, `[...]`), case-sensitive.
        rate: requests a second, in the long run; inf for no limit.
        burst: how many requests may come at once before the rate counts.
        weight: its share of the devices' time beside that of others; 1 is usual.
    """

    models: tuple[str, ...]
    permissions: frozenset[Permission]
    rate: float = inf
    burst: float = inf
    weight: float = 1.0

    def allow_model(self, name: str) -> bool:
        return matches(self.models, name)

    @property
    def allow_every_model(self) -> bool:
        return "*" in self.models

    @property
    def operates(self) -> bool:
        """Does its caller look after the whole server, so that it may see what other callers have registered?"""
        return self.allow_every_model and Permission.ADMINISTRATION in self.permissions


#: The name of a caller whose credential is a token begins so; no key's does.
ISSUED = "token:"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller who has proven who it is.

    Attributes:
        name: of its key, or ISSUED and the token's subject. It is no secret.
        expires_s: Unix seconds, from which on the credential is not valid; inf for never.
    """

    name: str
    rules: Rules
    expires_s: float = field(default=inf, compare=False)

    def check(self, need: Need) -> None:
        """Raises NotAllowed."""
        permission = need.permission
        if permission is not None and permission not in self.rules.permissions:
            raise NotAllowed(
                f"{self.name} has no permission {permission.value}, only {_listed(self.rules.permissions)}", self.name
            )
        if need.model:
            self.check_model(need.model)
        elif need.every_model and not self.rules.allow_every_model:
            raise NotAllowed(f"{self.name} may not see what this shows of all models, only some of them", self.name)

    def check_model(self, model: str) -> None:
        """Raises NotAllowed, whether there is such a model or not."""
        if not self.rules.allow_model(model):
            raise NotAllowed(f"{self.name} may not use model {model[:256]!r}", self.name)


def _listed(permissions: Collection[Permission]) -> str:
    return ", ".join(each.value for each in Permission if each in permissions) or "none"


@lru_cache(maxsize=1024)
def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Is it the name of a model that one of the patterns names?"""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
