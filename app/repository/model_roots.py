"""Model roots: the folders from which callers may have models read, as HandleReloadConfigRequest names folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os.path import normpath
from pathlib import Path

from app.core.errors import Forbidden
from app.repository.model_config import ModelConfig


class ModelRoots:
    """The folders below which base paths may lie: the setting's, or, without one, the parents of the operator's models.

    Paths are compared as they are written: reading the disk would let its storage hold up the caller. So the path of a
    caller has no `..`, which behind a link leads to the parent of its target, unless the operator wrote the same path.
    """

    def __init__(self, configured: Iterable[Path]) -> None:
        self._configured = {Path(normpath(each)) for each in configured}
        self._roots = set(self._configured)
        self._written: set[Path] = set()  # the operator's base paths

    def extend(self, listed: Sequence[ModelConfig]) -> None:
        """Add the parents of models that the operator lists, unless the setting names the roots."""
        self._written |= {each.base_path for each in listed if ".." in each.base_path.parts}
        if not self._configured:
            self._roots |= {_holder_of(each.base_path) for each in listed}

    def check(self, configs: Sequence[ModelConfig]) -> None:
        """Raises Forbidden if a base path lies elsewhere. The repository rejects paths that are not absolute."""
        for config in configs:
            path = config.base_path
            if path.is_absolute() and not self._lies_below(path):
                raise Forbidden(
                    f"Model {config.name[:128]} has base_path {str(config.base_path)[:256]!r}, but callers may name "
                    f"only folders below {', '.join(sorted(map(str, self._roots))) or 'none'} (setting model_roots), "
                    "without '..'"
                )

    def _lies_below(self, path: Path) -> bool:
        if ".." in path.parts and path not in self._written:
            return False
        plain = Path(normpath(path))
        return any(plain == root or root in plain.parents for root in self._roots)

    def __repr__(self) -> str:
        return f"<ModelRoots {', '.join(sorted(map(str, self._roots)))}>"


def _holder_of(base_path: Path) -> Path:
    """The parent of a base path; the path itself if the parent is the root folder."""
    path = Path(normpath(base_path))
    return path if path.parent == path.parent.parent else path.parent
