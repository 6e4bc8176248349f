"""How the models in memory are executed, for the health page."""

from __future__ import annotations

from typing import Any

from app.events import Event, ModelStateChanged, VariantsChosen


class ExecutionVariants:
    """A listener that remembers what was chosen for each version until that ends."""

    def __init__(self) -> None:
        self._signatures: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, VariantsChosen):
            self._signatures.setdefault((event.model, event.version), {})[event.signature] = [
                {"batch_size": size, "variant": variant, "speed_up": round(speed_up, 2)}
                for size, (variant, speed_up) in event.variants.items()
            ]
        elif isinstance(event, ModelStateChanged) and event.state == "END":
            self._signatures.pop((event.model, event.version), None)

    def document(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """By 'model/version' and signature, one entry for each batch size."""
        return {f"{model}/{version}": dict(signatures) for (model, version), signatures in self._signatures.items()}
