"""Which model's turn it is where models share the devices by weight: start-time fair queueing. Pure.

Each model has a virtual time, which a call moves on by its seconds over the model's weight: when it begins by those
that it will foreseeably take, when it ends by those that it took. The model that is least far goes next, so over any
time in which two have work their seconds are as their weights, but for a call of each and device. Who had no work
begins where the others are: nobody saves up, and an idle model's share goes to the others.

P. Goyal, H. M. Vin, H. Cheng: Start-time fair queuing, SIGCOMM 1996.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.batching.submission import StartedBatch


class Shares:
    """False where no model has a weight; then they do not share by it. Who has none beside one that has counts 1."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = {model: weight for model, weight in weights.items() if weight}
        self._ends: dict[str, float] = {}
        self._now = 0.0
        self._expected_s: dict[StartedBatch, float] = {}

    def __bool__(self) -> bool:
        return bool(self._weights)

    def set_weight(self, model: str, weight: float) -> None:
        """From the next call on; 0 takes it away."""
        self._weights.pop(model, None)
        if weight:
            self._weights[model] = weight

    def share(self, model: str, models: Iterable[str]) -> float:
        """Which part of the devices' time a model gets while just these have work."""
        return self._weight(model) / sum(map(self._weight, models))

    def start(self, model: str) -> float:
        """At which virtual time its next call would begin."""
        return max(self._now, self._ends.get(model, 0.0))

    def begun(self, batch: StartedBatch) -> None:
        """A batch is being computed."""
        model = batch.key.model
        self._now = self.start(model)
        expected_s = self._expected_s[batch] = batch.expected_s
        self._ends[model] = self._now + self._virtual(model, expected_s)

    def ended(self, batch: StartedBatch, seconds: float) -> None:
        """It took so long. One that began before there were weights counts for nothing."""
        expected_s = self._expected_s.pop(batch, None)
        if expected_s is not None:
            self._ends[batch.key.model] += self._virtual(batch.key.model, seconds - expected_s)

    def _virtual(self, model: str, seconds: float) -> float:
        return seconds / self._weight(model)

    def _weight(self, model: str) -> float:
        return self._weights.get(model, 1.0)
