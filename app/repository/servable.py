"""One version of one model on its way through its life."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from app.core.errors import ServingError
from app.core.events import Listener, ModelStateChanged
from app.core.versions import VersionState, VersionStatus
from app.repository.disk_layout import Fingerprint

if TYPE_CHECKING:
    from app.model import Model

logger = logging.getLogger(__name__)


class Servable:
    """START -> LOADING -> AVAILABLE -> UNLOADING -> END, each step told to the listener.

    `model` is there exactly while the state is AVAILABLE, so whoever finds it may call it.
    `failed_on` is what lay on disk when the load failed; None unless it failed and is still there.
    """

    def __init__(self, name: str, version: int, listener: Listener) -> None:
        self.name = name
        self.version = version
        self.model: Model | None = None
        self.failed_on: Fingerprint | None = None
        self._listener = listener
        self._enter(VersionState.START)

    @property
    def status(self) -> VersionStatus:
        return VersionStatus(self.version, self.state, self.error)

    @property
    def loading(self) -> bool:
        return self.state in {VersionState.START, VersionState.LOADING}

    @property
    def ended(self) -> bool:
        """Nothing is left of it but its status."""
        return self.state is VersionState.END and self.failed_on is None

    async def load(self, model: Awaitable[Model], files: Fingerprint) -> None:
        """Becomes AVAILABLE, or END with the error. `files` is what lies on disk before the load."""
        self._enter(VersionState.LOADING)
        try:
            self.model = await model
        except Exception as error:  # whatever a load raises must not stop the others
            self.failed_on = files
            if not isinstance(error, ServingError):
                logger.exception("%s failed to load in a way that nobody foresaw", self)
            self._enter(VersionState.END, _text(error))
        else:
            self._enter(VersionState.AVAILABLE)

    async def unload(self, mirrored: Callable[[], Awaitable[None]]) -> None:
        """Out of sight at once; END when the requests it accepted are answered and its memory is given back.

        It takes requests until `mirrored` returns: until then others may see the catalog as it was.
        """
        model, self.model = self.model, None
        if model is None:
            return
        self._enter(VersionState.UNLOADING)
        try:
            await mirrored()
            await model.close()
        except Exception as error:
            logger.exception("%s failed to unload", self)
            self._enter(VersionState.END, _text(error))
        else:
            self._enter(VersionState.END)

    def _enter(self, state: VersionState, error: str = "") -> None:
        self.state = state
        self.error = error
        self._listener(ModelStateChanged(self.name, self.version, state, error))

    def __str__(self) -> str:
        return f"version {self.version} of model {self.name}"


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
