"""The Open Inference Protocol's operations, as documents and calls that REST and gRPC share.

A field of a document appears in both: REST writes the document as JSON, gRPC converts it into the message of the same
fields, and rejects one that the .proto file lacks. Statistics are defined in `app/instrumentation/statistics.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, NoReturn

from app.batching.policy import DEFAULTS, BatchingOptions
from app.core.errors import Forbidden, InvalidRequest, ModelNotFound, ModelNotReady, ServingError, Unsupported
from app.core.inference import Buffer
from app.core.interfaces import ServedModel, ServedRepository, ServerHealth
from app.core.versions import VersionStatus
from app.protocols.open_inference.infer_call import choose_signature
from app.protocols.open_inference.metadata import available, index_documents, model_document, server_document
from app.protocols.open_inference.model_configuration.config_overrides import override_document, read_overrides
from app.protocols.open_inference.model_configuration.triton_model_config import config_document
from app.protocols.open_inference.parameters import Parameters
from app.protocols.open_inference.shared_memory import ReadRegion, RegionSlice, SharedMemory, WriteRegion
from app.transports.local_clients import is_local, user_of

_INT64_MAX = 2**63 - 1

_SWITCHED_OFF = "it is switched off (setting allow_shared_memory)"


class OpenInference:
    """The protocol's operations. Model versions are strings, as on the wire; '' is the newest.

    Args:
        statistics: from a model's name and version to its entry of `model_stats`.
        regions: None if there is no shared memory.
        batching: from a model's name to the options by which its batches are formed now.

    Raises (all methods that take a model's name):
        ModelNotFound, ModelNotReady, InvalidRequest: the version is not a number.
    """

    def __init__(
        self,
        repository: ServedRepository,
        statistics: Callable[[str, int], dict[str, Any]],
        health: ServerHealth,
        regions: SharedMemory | None = None,
        *,
        batching: Callable[[str], BatchingOptions] = lambda _: DEFAULTS,
    ) -> None:
        self._repository = repository
        self._statistics = statistics
        self._health = health
        self._regions = regions
        self._batching = batching
        #: Why there is no shared memory, where there is none.
        self.no_regions = _SWITCHED_OFF
        #: Returns when all answers up to now are counted, by frontends, too.
        self.counted: Callable[[], Awaitable[None]] = _counted_at_once

    # --- the server ---

    def live(self) -> bool:
        return not self._health.dead()

    def ready(self) -> bool:
        return not self._health.dead() and not self._health.unready()

    def server_metadata(self) -> dict[str, Any]:
        return server_document(self.has_regions)

    # --- models ---

    def resolve(self, name: str, version: str = "") -> ServedModel:
        """The model version to call."""
        try:
            return self._repository.resolve(name, _number(version))
        except ModelNotFound:
            raise ModelNotFound(f"Request for unknown model: {_shown(name, version)} is not found") from None

    def resolve_ready(self, name: str, version: str = "") -> ServedModel:
        """As `resolve`. Raises also ModelNotReady: it is a pipeline that waits for the model of a step."""
        model = self.resolve(name, version)
        if model.missing:
            raise ModelNotReady(f"Model {model.name} {model.missing}")
        return model

    def model_ready(self, name: str, version: str = "") -> bool:
        try:
            self.resolve_ready(name, version)
        except (ModelNotFound, ModelNotReady):
            return False
        return True

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        model = self.resolve(name, version)
        versions = [model.version] if version else available(self._repository.statuses(name))
        return model_document(name, versions, choose_signature(model.signatures), pipeline=model.pipeline)

    async def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        model = self.resolve(name, version)
        signature, options = choose_signature(model.signatures), self._batching(name)
        return config_document(name, signature, model.sizes, options, pipeline=model.pipeline)

    async def model_statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """Of the available versions of one model, or of all models if the name is empty."""
        if name:
            self.resolve(name, version)
        await self.counted()
        names = [name] if name else self._repository.names()
        wanted = _number(version)
        return {
            "model_stats": [
                self._statistics(each, number)
                for each in names
                for number in available(self._repository.statuses(each, wanted))
            ]
        }

    # --- the repository ---

    def repository_index(self, ready: bool = False) -> list[dict[str, str]]:
        """A document for each version of each model; with `ready` only for versions that can be called."""
        return index_documents({name: self._statuses(name) for name in self._repository.known_names()}, ready)

    def _statuses(self, name: str) -> Sequence[VersionStatus]:
        """Empty for a model that never had a version."""
        try:
            return self._repository.statuses(name)
        except (ModelNotFound, ModelNotReady):
            return []

    async def load_model(self, name: str, parameters: Parameters) -> None:
        """Serves a model, with what the parameter `config` overrides of its configuration.

        Raises InvalidRequest for other parameters and overrides that cannot be, else as ServedRepository.load.
        """
        with _told_as(f"failed to load {name[:256]!r}"):
            config = override_document(parameters)
            if config is None:
                await self._repository.load(name)
            else:
                await self._load_overridden(name, config)

    async def _load_overridden(self, name: str, config: Mapping[str, Any]) -> None:
        """What the configuration changes is known once the model is served."""
        served = self.model_ready(name)
        if not served:
            await self._repository.load(name)
        try:
            await self._repository.load(name, read_overrides(config, await self.model_config(name)))
        except ServingError:
            if not served:
                await self._repository.unload(name)
            raise

    async def unload_model(self, name: str) -> None:
        with _told_as(f"failed to unload {name[:256]!r}"):
            await self._repository.unload(name)

    # --- shared memory ---

    @property
    def regions(self) -> SharedMemory:
        """Raises Unsupported if there is no shared memory."""
        if self._regions is None:
            raise Unsupported(
                f"There is no system shared memory here: {self.no_regions}. Send tensors in the message: as binary "
                "data over REST, in raw_input_contents over gRPC"
            )
        return self._regions

    @property
    def has_regions(self) -> bool:
        return self._regions is not None

    def check_regions(self) -> None:
        """Raises Unsupported if there is no shared memory."""
        _ = self.regions

    async def register_region(self, name: str, key: str, offset: int, byte_size: int, client: tuple[str, int]) -> None:
        """`client` is the address and the port that the call comes from. Raises as `user_of` and SharedMemory."""
        regions = self.regions
        regions.register(name, key, offset, byte_size, await asyncio.to_thread(user_of, *client))

    async def unregister_region(self, name: str, client: tuple[str, int]) -> None:
        """As `register_region`; an empty name means all regions of the client's user."""
        regions = self.regions
        regions.unregister(name, await asyncio.to_thread(user_of, *client))

    def region_access(self, host: str) -> tuple[ReadRegion, WriteRegion]:
        """How a request from this address reads and writes regions. The functions raise Forbidden and Unsupported."""
        if self.has_regions and not is_local(host):
            return _reject_remote, _reject_remote
        return self._read, self._write

    def _read(self, part: RegionSlice) -> bytes:
        return self.regions.read(part)

    def _write(self, part: RegionSlice, content: Buffer) -> None:
        self.regions.write(part, content)


def _reject_remote(*_: object) -> NoReturn:
    raise Forbidden("Shared memory is for clients of this machine's loopback interface")


def cuda_regions(name: str) -> list[dict[str, Any]]:
    """A document for each region of CUDA shared memory: there is none. Raises InvalidRequest if one is named."""
    if name:
        raise InvalidRequest(f"Unable to find cuda shared memory region: {name[:256]!r}")
    return []


def reject_cuda_memory(_: object) -> NoReturn:
    """Raises Unsupported."""
    raise Unsupported("CUDA shared memory is not supported; use system shared memory")


async def _counted_at_once() -> None:
    pass


@contextmanager
def _told_as(what: str) -> Iterator[None]:
    """The text of an error begins with `what` failed: clients of Triton look for it."""
    try:
        yield
    except ServingError as error:
        told = copy(error)  # others may hold the error, too
        told.args = (f"{what}: {error}",)
        raise told from error


def _shown(name: str, version: str) -> str:
    return f"{name[:256]!r} version {version}" if version else repr(name[:256])


def _number(version: str) -> int | None:
    if not version:
        return None
    if not (version.isascii() and version.isdigit()) or len(version) > 20 or int(version) > _INT64_MAX:
        raise InvalidRequest(f"Model version is {version[:64]!r}; expected a whole number")
    return int(version)
