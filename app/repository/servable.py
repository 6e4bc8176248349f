"""A servable, TensorFlow Serving's word for one version of one model, and its state."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from app.core.errors import FilesUnreadable, InvalidRequest, OutOfMemory, ServingError
from app.core.events import Listener, ModelStateChanged, ReloadFailed
from app.core.versions import VersionState, VersionStatus, printable
from app.repository.disk.disk_layout import Fingerprint

if TYPE_CHECKING:
    from app.model import Model
    from app.pipelines.pipeline_model import PipelineModel

logger = logging.getLogger(__name__)


class Servable:
    """A version: START -> LOADING -> AVAILABLE -> UNLOADING -> END. The listener gets an event for each step.

    model: set exactly while the state is AVAILABLE, so it may be called whenever it is set. The `status` of a pipeline
        that waits for the model of a step again says START, and it rejects requests.
    failed_on: the fingerprint of the files whose load failed; None if no load failed or it is to be tried again.
    files: the fingerprint of the files that the model was loaded from; None before.
    outdated: whether it is to be loaded anew from the same files, in another way.
    refused: files with which it could not be loaded anew, and why; it serves from its earlier ones.
    rejected: whether the caller that made it `outdated` was at fault.
    may_pass: whether the load failed because files could not be read or memory ran out: a later one may succeed.
    """

    def __init__(self, name: str, version: int, listener: Listener) -> None:
        self.name = name
        self.version = version
        self.model: Model | PipelineModel | None = None
        self.failed_on: Fingerprint | None = None
        self.may_pass = False
        self.files: Fingerprint | None = None
        self.outdated = False
        self.refused: tuple[Fingerprint, str] | None = None
        self.rejected = False
        self._unloading: Model | PipelineModel | None = None
        self._listener = listener
        self._enter(VersionState.START)

    @property
    def status(self) -> VersionStatus:
        model = self.model
        if model is None:
            return VersionStatus(self.version, self.state, self.error)
        if model.missing:  # as one that waits for its models at first
            text = f"Model {self.name} version {self.version} answers no requests: it {model.missing}"
            return VersionStatus(self.version, VersionState.START, text)
        return VersionStatus(self.version, self.state, self.error, model.note)

    @property
    def loading(self) -> bool:
        return self.state in {VersionState.START, VersionState.LOADING}

    @property
    def why_failed(self) -> str:
        return f"Model {self.name} version {self.version} failed to load: {self.error}"

    @property
    def ended(self) -> bool:
        """Whether only the status is left."""
        return self.state is VersionState.END and self.failed_on is None

    @property
    def kept(self) -> bool:
        """Whether the version is being unloaded while pipelines still use it, perhaps until it is loaded again."""
        return self._unloading is not None and self._unloading.leased

    def withdraw(self) -> None:
        """End a servable whose load was not begun."""
        self._enter(VersionState.END)

    def outdate(self, outdated: bool = True) -> None:
        """Mark the version to be loaded again at the next poll, or remove the mark."""
        self.outdated, self.refused = outdated and self.model is not None, None

    async def load(self, model: Awaitable[Model | PipelineModel], files: Fingerprint) -> None:
        """Become AVAILABLE, or END with the error. `files`: the fingerprint of the files before the load.

        A servable that is `kept` is loaded, too: its earlier life ends without an event.
        """
        self._unloading = None
        self._enter(VersionState.LOADING)
        try:
            self.model = await model
        except Exception as error:  # an error of one load must not stop the others
            self.failed_on, self.may_pass = files, _may_pass(error)
            if not isinstance(error, (ServingError, OSError)):
                logger.exception("%s failed to load by an unexpected error; other versions keep serving", self)
            self._enter(VersionState.END, _text(error))
        else:
            self.files = files
            self._enter(VersionState.AVAILABLE)

    async def load_anew(
        self, model: Awaitable[Model | PipelineModel], files: Fingerprint
    ) -> Model | PipelineModel | None:
        """Replace the model by one that was loaded from changed files. If that fails, the old model serves on.

        Returns the model that is not in use any more, to be closed: the old one; the new one, if the servable was
        unloaded meanwhile; None if the load failed.
        """
        try:
            new = await model
        except Exception as error:
            self.refused, self.rejected = (files, _text(error)), self.outdated and isinstance(error, InvalidRequest)
            self.may_pass = _may_pass(error)
            logger.error("%s %scould not be loaded anew, so it serves on as it was: %s", self, self._why_anew, error)
            self._listener(ReloadFailed(self.name, self.version, _text(error)))
            return None
        if self.model is None:
            return new
        old, self.model, self.files, self.refused = self.model, new, files, None
        logger.info("%s %swas loaded anew", self, self._why_anew)
        self.outdated = False
        self._enter(VersionState.AVAILABLE)
        return old

    async def unload(self, mirrored: Callable[[], Awaitable[None]]) -> None:
        """Leave the catalog at once; END when accepted requests are answered and the memory is free.

        Args:
            mirrored: waits until all copies of the catalog, which frontends hold, are up to date. Until then the model
                takes requests.
        """
        model, self.model = self.model, None
        if model is None:
            return
        self._unloading, problem = model, ""
        self._enter(VersionState.UNLOADING)
        try:
            await mirrored()
            await model.close()
        except Exception as error:
            logger.exception("%s failed to unload; its memory may not be free", self)
            problem = _text(error)
        if self._unloading is model:
            self._unloading = None
            self._enter(VersionState.END, problem)

    @property
    def _why_anew(self) -> str:
        return "" if self.outdated else "changed on disk and "

    def _enter(self, state: VersionState, error: str = "") -> None:
        self.state = state
        self.error = error
        self._listener(ModelStateChanged(self.name, self.version, state, error))

    def __str__(self) -> str:
        return f"version {self.version} of model {self.name}"

    def __repr__(self) -> str:
        return f"<Servable {self.name} {self.version}, {self.state}{', ' + self.error if self.error else ''}>"


def _may_pass(error: Exception) -> bool:
    """Whether a failure may pass: lack of memory may; a missing file, or a folder in its place, may not."""
    lasting = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
    return isinstance(error, (FilesUnreadable, OutOfMemory, OSError)) and not isinstance(error, lasting)


def _text(error: Exception) -> str:
    return printable(str(error)) or type(error).__name__
