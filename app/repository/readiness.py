"""Whether requests should be sent here, and which models do not work.

1. Ready: each model that was found at start has been tried, and at least one model can be called. So one broken model
   does not take the others out of rotation.
2. A model that arrives later does not matter for readiness: neither while it loads, nor if it fails.
3. What does not work is always told by name, ready or not.
"""

from __future__ import annotations

from app.core.versions import ModelProblem, ProblemKind
from app.repository.catalog import Catalog
from app.repository.disk_layout import DiskLayout


class Readiness:
    """Judges a catalog and the last layout of the disk.

    Args:
        source: where the models come from, for the texts.
        strict: every model that was found at start must be callable.
    """

    def __init__(self, catalog: Catalog, source: str, *, strict: bool = False) -> None:
        self._catalog = catalog
        self._source = source
        self._strict = strict
        self._layout = DiskLayout()
        self._found_at_start: frozenset[str] | None = None
        self._untried: set[str] = set()
        self._polled = False

    # --- what happens ---

    def layout_changed(self, layout: DiskLayout) -> None:
        self._layout = layout
        if self._found_at_start is not None:
            self._found_at_start &= layout.configs.keys()
        elif layout.configs:
            self._found_at_start = frozenset(layout.configs)
            self._untried = set(layout.configs.keys() - layout.unreadable)

    def tried(self, model: str) -> None:
        """The model has loaded, has failed to load, or has nothing to load."""
        self._untried.discard(model)

    def polled(self) -> None:
        """A poll of the disk has ended."""
        self._polled = True

    # --- verdicts ---

    def missing(self) -> list[str]:
        """The models that were found at start and cannot be called."""
        return [name for name in sorted(self._found_at_start or ()) if not self._catalog.available(name)]

    def unready_reasons(self) -> list[str]:
        """Why no requests should be sent; empty if they should."""
        missing = self.missing()
        if needed := missing if self._strict else [name for name in missing if name in self._untried]:
            return [self._catalog.why_unavailable(name) or why_no_version(name, self._layout) for name in needed]
        if any(servable.model for servable in self._catalog.servables()):
            return []
        if not self._polled:
            return ["Models are still loading"]
        return [problem.text for problem in self.problems()] or [f"No model is served from {self._source}"]

    def problems(self) -> list[ModelProblem]:
        """The versions that failed to load, and the models that have no version to load; sorted by name."""
        failed = [
            ModelProblem(each.name, each.version, ProblemKind.FAILED, each.why_failed)
            for each in self._catalog.servables()
            if each.failed_on is not None
        ]
        without = [
            ModelProblem(
                name,
                None,
                ProblemKind.UNREADABLE if name in self._layout.unreadable else ProblemKind.MISSING,
                why_no_version(name, self._layout),
            )
            for name in self._layout.configs.keys() - self._catalog.names()
        ]
        return sorted([*failed, *without], key=lambda problem: (problem.model, -(problem.version or 0)))


def why_no_version(model: str, layout: DiskLayout) -> str:
    return f"Model {model} has no complete version folder in {layout.configs[model].base_path}"
