"""Which signatures share calls among requests of different shapes, for the health page."""

from __future__ import annotations

from app.events import ModelStateChanged, ShapesProbed, Subscriptions


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
