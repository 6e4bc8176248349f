"""Where callers may have models read from: HandleReloadConfigRequest names folders of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os.path import normpath
from pathlib import Path

from app.core.errors import Forbidden
from app.repository.model_config import ModelConfig


class ModelRoots:
    """The folders below which base paths may lie: those of the setting; without any, those that hold the operator's.

    Paths are compared as they are written: looking at the disk would let its storage hold up the caller. So none of a
    caller's has `..` unless the operator wrote it so: behind a link that leads to what holds the link's target.
    """

    def __init__(self, configured: Iterable[Path]) -> None:
        self._configured = {Path(normpath(each)) for each in configured}
        self._roots = set(self._configured)
        self._written: set[Path] = set()  # the operator's base paths

    def extend(self, listed: Sequence[ModelConfig]) -> None:
        """The operator lists these models, and so trusts the folders that hold them, unless the setting says which."""
        self._written |= {each.base_path for each in listed if ".." in each.base_path.parts}
        if not self._configured:
            self._roots |= {_holder_of(each.base_path) for each in listed}

    def check(self, configs: Sequence[ModelConfig]) -> None:
        """Raises Forbidden if a base path lies elsewhere. The repository rejects those that are not absolute."""
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
    """The folder in which a base path lies; itself, if that is the root of all."""
    path = Path(normpath(base_path))
    return path if path.parent == path.parent.parent else path.parent
