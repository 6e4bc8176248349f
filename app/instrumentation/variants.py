"""How the models in memory are executed, for the health page."""

from __future__ import annotations

from typing import Any

from app.events import ModelStateChanged, Subscriptions, VariantsChosen


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
