"""What the health page shows of each version in memory: its devices, mixed shapes and execution variants.

Each class is a subscriber that records one type of event by model and version, until the version ends.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from app.core.events import ModelPlaced, ModelStateChanged, ShapesProbed, Subscriptions, VariantsChosen

Fact = TypeVar("Fact")


class _FactsByVersion(Generic[Fact]):
    def __init__(self) -> None:
        self._facts: dict[tuple[str, int], Fact] = {}

    def _named(self) -> dict[str, Fact]:
        """The facts by 'model/version'."""
        return {f"{model}/{version}": fact for (model, version), fact in self._facts.items()}

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state == "END":
            self._facts.pop((event.model, event.version), None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._named()}>"


class ModelDevices(_FactsByVersion[list[str]]):
    """The devices of each version, with one replica on each."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions: Subscriptions = {
            ModelPlaced: self._model_placed,
            ModelStateChanged: self._model_state_changed,
        }

    def document(self) -> dict[str, list[str]]:
        """Devices by 'model/version'."""
        return self._named()

    def _model_placed(self, event: ModelPlaced) -> None:
        self._facts[event.model, event.version] = list(event.devices)


class MixedShapes(_FactsByVersion[dict[str, ShapesProbed]]):
    """Whether requests of different shapes share calls of each signature."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions: Subscriptions = {
            ShapesProbed: self._shapes_probed,
            ModelStateChanged: self._model_state_changed,
        }

    def document(self) -> dict[str, dict[str, str]]:
        """By 'model/version' and signature: how they share calls, or why not."""
        return {
            version: {name: found.explanation for name, found in signatures.items()}
            for version, signatures in self._named().items()
        }

    def found(self, model: str, version: int, signature: str) -> ShapesProbed | None:
        """None if the signature was not probed."""
        return self._facts.get((model, version), {}).get(signature)

    def _shapes_probed(self, event: ShapesProbed) -> None:
        self._facts.setdefault((event.model, event.version), {})[event.signature] = event


class ExecutionVariants(_FactsByVersion[dict[str, list[dict[str, Any]]]]):
    """The execution variants that were chosen for each version."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions: Subscriptions = {
            VariantsChosen: self._variants_chosen,
            ModelStateChanged: self._model_state_changed,
        }

    def document(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """By 'model/version' and signature, one entry for each batch size."""
        return {version: dict(signatures) for version, signatures in self._named().items()}

    def _variants_chosen(self, event: VariantsChosen) -> None:
        self._facts.setdefault((event.model, event.version), {})[event.signature] = [
            {"batch_size": size, "variant": variant, "speed_up": round(speed_up, 2)}
            for size, (variant, speed_up) in event.variants.items()
        ]
