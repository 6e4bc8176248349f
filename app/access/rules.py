"""Rules of access as plain values: the need of a request, and the permissions and limits of a caller."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf

from app.core.errors import NotAllowed


class Permission(Enum):
    """A permission of callers."""

    INFER = "infer"  # predict, classify, regress, infer, streams
    METADATA = "metadata"  # states, signatures, statistics, batching, the API's description
    ADMINISTRATION = "administration"  # load, unload, reload, tune, register shared memory
    METRICS = "metrics"  # the metrics page and /health, which name every model


@dataclass(frozen=True, slots=True)
class Need:
    """The need of a request.

    Attributes:
        permission: None if no credential is needed.
        model: the model that the head names; empty if it names none, or only the message does.
        every_model: whether the reply shows something of all models.
    """

    permission: Permission | None
    model: str = ""
    every_model: bool = False


#: The need of probes, which send no key and see no model name.
OPEN = Need(None)

#: The need of undefined routes: METADATA on all models. So a new route is closed by default.
UNKNOWN = Need(Permission.METADATA, every_model=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a caller.

    Attributes:
        models: patterns of allowed names (`*`, `?`, `[...]`), case-sensitive.
        rate: requests a second, in the long run; inf for no limit.
        burst: requests that may come at once before the rate counts.
        weight: the share of the devices' time relative to other callers; 1 is usual.
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
        """Whether the caller is an operator of the whole server, who sees the regions of other callers."""
        return self.allow_every_model and Permission.ADMINISTRATION in self.permissions


#: The beginning of the names of callers with tokens; no key has such a name.
ISSUED = "token:"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    Attributes:
        name: of the key, or ISSUED and the token's subject. It is no secret.
        expires_s: the end of the credential in Unix seconds; inf for never.
    """

    name: str
    rules: Rules
    expires_s: float = field(default=inf, compare=False)

    def check(self, need: Need) -> None:
        """Check the need of a request. Raises NotAllowed."""
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
        """Check the name of a model, whether there is such a model or not. Raises NotAllowed."""
        if not self.rules.allow_model(model):
            raise NotAllowed(f"{self.name} may not use model {model[:256]!r}", self.name)


def _listed(permissions: Collection[Permission]) -> str:
    return ", ".join(each.value for each in Permission if each in permissions) or "none"


@lru_cache(maxsize=1024)
def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of the patterns matches the name of a model."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
