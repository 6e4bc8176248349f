"""The readiness of a server for requests, and the problems of its models.

1. A server is ready when each model that was found at start has been tried, and at least one model can be called. So
   one broken model does not take the others out of rotation. A model whose files are still changing is tried twice, and
   a pipeline that waits for its models as long as these are tried.
2. A model that arrives later does not matter for readiness: neither while it loads, nor if it fails.
3. Problems are always listed by name, ready or not.
"""

from __future__ import annotations

from app.core.versions import ModelProblem, ProblemKind
from app.repository.catalog import Catalog
from app.repository.disk.disk_layout import DiskLayout


class Readiness:
    """The readiness of a catalog and the last layout of the disk.

    Args:
        source: the name of the models' source, for error texts.
        strict: every model that was found at start must be callable.
    """

    def __init__(self, catalog: Catalog, source: str, *, strict: bool = False) -> None:
        self._catalog = catalog
        self._source = source
        self._strict = strict
        self._layout = DiskLayout()
        self._found_at_start: frozenset[str] | None = None
        self._untried: set[str] = set()
        self._seen_changing: set[str] = set()
        self._seen_waiting: set[str] = set()
        self._polled = False
        #: The reason why the models folder could not be read; empty if it could.
        self.source_error = ""

    # --- changes ---

    def layout_changed(self, layout: DiskLayout) -> None:
        self._layout = layout
        self._seen_changing &= layout.configs.keys()
        if self._found_at_start is not None:
            self._found_at_start &= layout.configs.keys()
        elif layout.configs:
            self._found_at_start = frozenset(layout.configs)
            self._untried = set(layout.configs.keys() - layout.unreadable)

    def tried(self, model: str) -> None:
        """Note that a model has loaded, has failed, or has nothing to load, perhaps as its files are still changing."""
        held = self._catalog.held.get(model, {}).values()
        if model not in self._seen_changing and any(each.kind is ProblemKind.CHANGING for each in held):
            self._seen_changing.add(model)
        elif not self._polled and any(each.kind is ProblemKind.WAITING for each in held):
            self._seen_waiting.add(model)
        else:
            self._untried.discard(model)

    def polled(self) -> None:
        """Note the end of a poll; the first one ends with all its loads."""
        self._polled = True
        self._untried -= self._seen_waiting

    # --- verdicts ---

    def missing(self) -> list[str]:
        """The models that were found at start and cannot be called."""
        return [name for name in sorted(self._found_at_start or ()) if not self._catalog.available(name)]

    def unready_reasons(self) -> list[str]:
        """The reasons why no requests should be sent; empty if they should."""
        missing = self.missing()
        if needed := missing if self._strict else [name for name in missing if name in self._untried]:
            return [self._catalog.why_unavailable(name) or why_no_version(name, self._layout) for name in needed]
        if any(servable.model for servable in self._catalog.servables()):
            return []
        if not self._polled:
            return ["Models are still loading"]
        return [problem.text for problem in self.problems()] or [f"No model is served from {self._source}"]

    def problems(self) -> list[ModelProblem]:
        """The problems, sorted by model.

        A problem is a version that failed to load or is held, a pipeline that waits for a model again, or a model
        without a known version.
        """
        failed = [
            ModelProblem(each.name, each.version, ProblemKind.FAILED, each.why_failed)
            for each in self._catalog.servables()
            if each.failed_on is not None
        ]
        held = [
            problem
            for problems in self._catalog.held.values()
            for problem in problems.values()
            if problem.kind is not ProblemKind.READING
        ]
        waiting = [
            ModelProblem(each.name, each.version, ProblemKind.WAITING, each.status.error_message)
            for each in self._catalog.servables()
            if each.model is not None and each.model.missing
        ]
        names = self._catalog.names()
        unknown = [
            self._unknown(name) for name in self._layout.configs if name not in names or self._is_unreadable(name)
        ]
        source = [ModelProblem("", None, ProblemKind.UNREADABLE, self.source_error)] if self.source_error else []
        return sorted(
            [*source, *failed, *held, *waiting, *unknown], key=lambda problem: (problem.model, -(problem.version or 0))
        )

    def _is_unreadable(self, model: str) -> bool:
        return model in self._layout.unreadable

    def _unknown(self, model: str) -> ModelProblem:
        """The problem of a model without a version, or with a folder that cannot be read."""
        text = why_no_version(model, self._layout)
        if self._is_unreadable(model):
            if self._catalog.available(model):
                text = f"Changes of model {model} are not seen, and it serves on: {self._layout.why_unreadable(model)}"
            return ModelProblem(model, None, ProblemKind.UNREADABLE, text)
        return ModelProblem(model, None, ProblemKind.MISSING, text)


def why_no_version(model: str, layout: DiskLayout) -> str:
    return f"Model {model} has no complete version folder in {layout.configs[model].base_path}"
