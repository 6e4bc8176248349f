"""One SavedModel on several devices: each has variables of its own, and a call runs on one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import tee

from app.core.inference import Array, ModelSignature
from app.core.time_budget import TimeBudget
from app.runtime import ProgressReport, ShapeTrial, VariantChoice
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel


class Replicas:
    """The ReplicatedModel of one SavedModel, loaded once for each device. Called as one it is the first."""

    def __init__(self, replicas: Sequence[SavedModel]) -> None:
        self.replicas = replicas
        self._first = replicas[0]

    @property
    def signatures(self) -> Mapping[str, ModelSignature]:
        return self._first.signatures

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return self._first.run(signature, inputs, outputs)

    def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
        """What is fastest on the first device is used on all: they are of one kind."""
        choices = self._first.tune(sizes, report, budget)
        for replica in self.replicas[1:]:
            replica.adopt(choices, sizes, report)
        return choices

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        """What gains on the first device is compiled for all; nothing counts as compiled that not all can use."""
        tried, kept = tee(trials)
        gains = self._first.compile_shapes(signature, tried, budget)
        used = [trial for gain, trial in zip(gains, kept, strict=False) if gain]
        return gains if all(replica.adopt_shapes(signature, used) for replica in self.replicas[1:]) else ()

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
