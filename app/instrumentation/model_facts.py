"""On which devices the models in memory live, for the health page.

Which signatures share calls among requests of different shapes, for the health page.

How the models in memory are executed, for the health page."""

from __future__ import annotations

from typing import Any

from app.core.events import ModelPlaced, ModelStateChanged, ShapesProbed, Subscriptions, VariantsChosen


class ModelDevices:
    """A subscriber that remembers the devices of each version until that ends."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, int], list[str]] = {}
        self.subscriptions: Subscriptions = {
            ModelPlaced: self._model_placed,
            ModelStateChanged: self._model_state_changed,
        }

    def document(self) -> dict[str, list[str]]:
        """By 'model/version' its devices, a replica on each."""
        return {f"{model}/{version}": devices for (model, version), devices in self._devices.items()}

    def _model_placed(self, event: ModelPlaced) -> None:
        self._devices[event.model, event.version] = list(event.devices)

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state == "END":
            self._devices.pop((event.model, event.version), None)


class MixedShapes:
    """A subscriber that remembers what was found for each version until that ends."""

    def __init__(self) -> None:
        self._signatures: dict[tuple[str, int], dict[str, ShapesProbed]] = {}
        self.subscriptions: Subscriptions = {
            ShapesProbed: self._shapes_probed,
            ModelStateChanged: self._model_state_changed,
        }

    def document(self) -> dict[str, dict[str, str]]:
        """By 'model/version' and signature, how they do, or why not."""
        return {
            f"{model}/{version}": {name: found.explanation for name, found in signatures.items()}
            for (model, version), signatures in self._signatures.items()
        }

    def found(self, model: str, version: int, signature: str) -> ShapesProbed | None:
        """None where nothing was asked."""
        return self._signatures.get((model, version), {}).get(signature)

    def _shapes_probed(self, event: ShapesProbed) -> None:
        self._signatures.setdefault((event.model, event.version), {})[event.signature] = event

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state == "END":
            self._signatures.pop((event.model, event.version), None)


class ExecutionVariants:
    """A subscriber that remembers what was chosen for each version until that ends."""

    def __init__(self) -> None:
        self._signatures: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
        self.subscriptions: Subscriptions = {
            VariantsChosen: self._variants_chosen,
            ModelStateChanged: self._model_state_changed,
        }

    def document(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """By 'model/version' and signature, one entry for each batch size."""
        return {f"{model}/{version}": dict(signatures) for (model, version), signatures in self._signatures.items()}

    def _variants_chosen(self, event: VariantsChosen) -> None:
        self._signatures.setdefault((event.model, event.version), {})[event.signature] = [
            {"batch_size": size, "variant": variant, "speed_up": round(speed_up, 2)}
            for size, (variant, speed_up) in event.variants.items()
        ]

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state == "END":
            self._signatures.pop((event.model, event.version), None)
