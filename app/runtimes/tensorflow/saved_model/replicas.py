"""One SavedModel loaded on several devices. Each replica has separate variables, and a call runs on one replica."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import tee

from app.core.time_budget import TimeBudget
from app.runtime import ProgressReport, ShapeTrial, VariantChoice, note_of
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel


class Replicas:
    """The ReplicatedModel of one SavedModel, loaded once for each device. Its `run` is that of the first."""

    def __init__(self, replicas: Sequence[SavedModel]) -> None:
        self.replicas = replicas
        self._first = replicas[0]
        self.signatures = self._first.signatures
        self.note = note_of(self._first)
        self.run, self.run_plain, self.value_hints = self._first.run, self._first.run_plain, self._first.value_hints

    def stop_variants(self, signature: str) -> None:
        for replica in self.replicas:
            replica.stop_variants(signature)

    def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
        """Searches on the first device and uses the choices on all, because all are of the same kind."""
        choices = self._first.tune(sizes, report, budget)
        for replica in self.replicas[1:]:
            replica.adopt(choices, sizes, report)
        return choices

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        """Compiles for all devices the shapes that are faster on the first; all replicas must be able to use them."""
        tried, kept = tee(trials)
        gains = self._first.compile_shapes(signature, tried, budget)
        used = [trial for gain, trial in zip(gains, kept, strict=False) if gain]
        return gains if all(replica.adopt_shapes(signature, used) for replica in self.replicas[1:]) else ()

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
