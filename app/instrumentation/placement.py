"""On which devices the models in memory live, for the health page."""

from __future__ import annotations

from app.events import ModelPlaced, ModelStateChanged, Subscriptions


class Placement:
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
