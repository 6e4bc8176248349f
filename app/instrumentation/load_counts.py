"""Counts of loads by model: of versions that were loaded or failed to load, and of the time that it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from app.core.events import ModelStateChanged, ReloadFailed
from app.core.versions import VersionState
from app.instrumentation.histogram import Histogram

#: The bounds of the histogram of loads, in seconds. Chosen: from a small model in the page cache to a large one on slow
#: storage, with its trials.
LOAD_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

#: The most models without a version in memory whose counts are kept. Chosen: more than fail to load.
_GONE_KEPT = 1024


class LoadCounts:
    """The counts of all models.

    Args:
        clock: monotonic seconds.

    Attributes:
        results: by model, how many loads have 'loaded' and 'failed'; both are there once a load has begun.
        seconds: by model, from the begin of a load to its end. A load anew of a served version has no seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_s: dict[tuple[str, int], float] = {}
        self._living: set[tuple[str, int]] = set()
        self.results: dict[str, Counter[str]] = {}
        self.seconds: dict[str, Histogram] = {}

    def keep_only(self, models: Collection[str]) -> None:
        """Forget other models, so that names which come and go take no memory."""
        for gone in self.results.keys() - models - {model for model, _ in self._begun_s}:
            del self.results[gone], self.seconds[gone]

    def model_state_changed(self, event: ModelStateChanged) -> None:
        key = event.model, event.version
        (self._living.discard if event.state == VersionState.END else self._living.add)(key)
        if event.state == VersionState.LOADING:
            self._begun_s[key] = self._clock()
            self._results_of(event.model)
            return
        begun_s = self._begun_s.pop(key, None)
        if event.state == VersionState.AVAILABLE:
            self._results_of(event.model)["loaded"] += 1
        elif begun_s is not None and event.state == VersionState.END:
            self._results_of(event.model)["failed"] += 1
        if begun_s is not None:
            self.seconds[event.model].observe(self._clock() - begun_s)
        if event.state == VersionState.END:
            self._forget_gone(event.model)

    def reload_failed(self, event: ReloadFailed) -> None:
        self._results_of(event.model)["failed"] += 1

    def _results_of(self, model: str) -> Counter[str]:
        self.seconds.setdefault(model, Histogram(LOAD_SECONDS))
        return self.results.setdefault(model, Counter({"loaded": 0, "failed": 0}))

    def _forget_gone(self, ended: str) -> None:
        """Forget the models whose last versions ended first, as a version of one more has ended."""
        if ended in self.results:
            self.results[ended] = self.results.pop(ended)  # as the newest
        living = {model for model, _ in self._living}
        for gone in [model for model in self.results if model not in living][:-_GONE_KEPT]:
            del self.results[gone], self.seconds[gone]
