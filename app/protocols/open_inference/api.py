"""The Open Inference Protocol's operations, as documents and calls that REST and gRPC share.

REST writes a document as JSON; gRPC converts it into the message of the same fields, and rejects a field that the
.proto file lacks. Statistics are defined in `app/instrumentation/statistics.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import Any, NoReturn

from app.access.access import Permit
from app.access.rules import matches
from app.batching.policy import DEFAULTS, BatchingOptions
from app.core.errors import Forbidden, InvalidRequest, ModelNotFound, ModelNotReady, ServingError, Unsupported
from app.core.interfaces import ServedModel, ServedRepository, ServerHealth
from app.core.versions import VersionStatus
from app.protocols.open_inference.documents.list_pages import IN_JSON, index_pages, statistics_pages
from app.protocols.open_inference.infer_call import choose_signature
from app.protocols.open_inference.metadata import available, index_documents, model_document, server_document
from app.protocols.open_inference.model_configuration.config_overrides import override_document, read_overrides
from app.protocols.open_inference.model_configuration.triton_model_config import config_document
from app.protocols.open_inference.parameters import Parameters
from app.protocols.open_inference.shared_memory import ReadRegion, RegionCaller, SharedMemory, WriteRegion
from app.transports.local_clients import is_local, user_of
from app.transports.rendered_pages import Page, Pieces, RenderedPages

#: Patterns of names of models; None for all models.
Patterns = tuple[str, ...] | None

_INT64_MAX = 2**63 - 1

_SWITCHED_OFF = "it is switched off (setting allow_shared_memory)"


class OpenInference:
    """The operations of the protocol. Model versions are strings, as on the wire; '' is the newest.

    Args:
        statistics: from a model's name and version to its entry of `model_stats`.
        regions: None if there is no shared memory.
        batching: from a model's name to its batching options in force.
        pages: the rendered pages of the process; by default pages of these lists alone.

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
        pages: RenderedPages | None = None,
    ) -> None:
        self._repository = repository
        self._statistics = statistics
        self._health = health
        self._regions = regions
        self._batching = batching
        #: The reason for the error text where there is no shared memory.
        self.no_regions = _SWITCHED_OFF
        self._pages = pages or RenderedPages()
        self._statistics_list, self._index_list = statistics_pages(), index_pages()

    # --- the server ---

    def live(self) -> bool:
        return not self._health.dead()

    def ready(self) -> bool:
        return not self._health.dead() and not self._health.unready()

    def server_metadata(self) -> dict[str, Any]:
        return server_document(self.has_regions)

    # --- models ---

    def resolve(self, name: str, version: str = "") -> ServedModel:
        """The model version that a request names."""
        try:
            return self._repository.resolve(name, _number(version))
        except ModelNotFound:
            raise ModelNotFound(f"Request for unknown model: {_shown(name, version)} is not found") from None

    def resolve_ready(self, name: str, version: str = "") -> ServedModel:
        """The model, as by `resolve`. Raises also ModelNotReady: a pipeline waits for the model of a step."""
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

    async def model_statistics(
        self,
        name: str = "",
        version: str = "",
        form: str = IN_JSON,
        models: Patterns = None,
        encoding: str | None = None,
    ) -> Page:
        """The statistics of the available versions of one model, or of all models if the name is empty.

        Args:
            form: IN_JSON or IN_PROTOBUF.
            models: patterns of the models that are shown; None for all.
            encoding: the content coding of JSON.
        """
        if name:
            self.resolve(name, version)  # raises for an unknown model, whose name would be the key of a page
        return await self._statistics_page(name, _number(version), form, models, encoding)

    async def _statistics_page(
        self, name: str, version: int | None, form: str, models: Patterns, encoding: str | None
    ) -> Page:
        """The page of statistics; a frontend asks the engine for it."""
        asked = name, version, form, models, encoding
        return await self._pages.ask(("statistics", *asked), partial(self._render_statistics, *asked), counts=True)

    def _render_statistics(
        self, name: str, version: int | None, form: str, models: Patterns, encoding: str | None
    ) -> Pieces[Page]:
        written, pages = list[bytes](), self._statistics_list
        for each in _visible([name] if name else self._repository.names(), models):
            with suppress(ModelNotFound, ModelNotReady):  # the model was unloaded meanwhile
                for number in available(self._repository.statuses(each, version)):
                    written.append(pages.entry(form, self._statistics(each, number)))
                    yield
        return (yield from pages.page(form, written, encoding))

    # --- the repository ---

    async def repository_index(
        self, ready: bool = False, form: str = IN_JSON, models: Patterns = None, encoding: str | None = None
    ) -> Page:
        """The index of all versions of all models; with `ready` without versions that cannot be called.

        Args: as of `model_statistics`.
        """
        asked = ready, form, models, encoding
        return await self._pages.ask(("index", *asked), partial(self._render_index, *asked))

    def _render_index(self, ready: bool, form: str, models: Patterns, encoding: str | None) -> Pieces[Page]:
        written, pages = list[bytes](), self._index_list
        for name in _visible(self._repository.known_names(), models):
            written += [pages.entry(form, each) for each in index_documents(name, self._statuses(name), ready)]
            yield
        return (yield from pages.page(form, written, encoding))

    def _statuses(self, name: str) -> Sequence[VersionStatus]:
        """The versions of a model; none if it never had one."""
        try:
            return self._repository.statuses(name)
        except (ModelNotFound, ModelNotReady):
            return []

    async def load_model(self, name: str, parameters: Parameters) -> None:
        """Serve a model, with the fields of its configuration that the parameter `config` overrides.

        Raises InvalidRequest for other parameters and for fields that cannot be overridden, else as
        ServedRepository.load.
        """
        with _error_prefix(f"failed to load {name[:256]!r}"):
            config = override_document(parameters)
            if config is None:
                await self._repository.load(name)
            else:
                await self._load_overridden(name, config)

    async def _load_overridden(self, name: str, config: Mapping[str, Any]) -> None:
        """Load a model, and load it anew with its overrides: which these are is known once the model is served."""
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
        with _error_prefix(f"failed to unload {name[:256]!r}"):
            await self._repository.unload(name)

    # --- shared memory ---

    @property
    def regions(self) -> SharedMemory:
        """The regions of shared memory. Raises Unsupported if shared memory is switched off."""
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
        """Check that there is shared memory. Raises Unsupported if it is switched off."""
        _ = self.regions

    async def register_region(
        self, name: str, key: str, offset: int, byte_size: int, client: tuple[str, int], *, permit: Permit | None
    ) -> None:
        """Register a region. `client`: the address and port of the caller. Raises as `user_of` and SharedMemory."""
        regions = self.regions
        user = await asyncio.to_thread(user_of, *client)
        if permit is not None:
            permit.renew()  # the credential may have ended meanwhile, and its regions with it
        regions.register(name, key, offset, byte_size, user, caller=RegionCaller.of(permit))

    async def unregister_region(self, name: str, client: tuple[str, int], *, permit: Permit | None) -> None:
        """Unregister a region, or, without a name, all regions of the client's user that this caller registered."""
        regions = self.regions
        regions.unregister(name, await asyncio.to_thread(user_of, *client), RegionCaller.of(permit))

    def region_documents(self, name: str, permit: Permit | None) -> list[dict[str, Any]]:
        """The documents of one region, or, without a name, of all regions that the caller sees.

        Raises InvalidRequest: the caller sees no region of this name.
        """
        return self.regions.status(name, RegionCaller.of(permit))

    def region_access(self, host: str, permit: Permit | None) -> tuple[ReadRegion, WriteRegion]:
        """The functions by which a request from this address reads and writes the caller's regions.

        They raise InvalidRequest, Forbidden and Unsupported.
        """
        if self.has_regions and not is_local(host):
            return _reject_remote, _reject_remote
        owner = "" if permit is None else permit.principal.name
        return (
            lambda part: self.regions.read(part, owner),
            lambda part, content: self.regions.write(part, content, owner),
        )


def _reject_remote(*_: object) -> NoReturn:
    raise Forbidden("Shared memory is for clients of this machine's loopback interface")


def cuda_regions(name: str) -> list[dict[str, Any]]:
    """The regions of CUDA shared memory: there are none. Raises InvalidRequest if one is named."""
    if name:
        raise InvalidRequest(f"Unable to find cuda shared memory region: {name[:256]!r}")
    return []


def reject_cuda_memory(_: object) -> NoReturn:
    """Reject a registration of CUDA shared memory. Raises Unsupported."""
    raise Unsupported("CUDA shared memory is not supported; use system shared memory")


@contextmanager
def _error_prefix(what: str) -> Iterator[None]:
    """Put `what` before the text of an error that the block raises: clients of Triton look for this prefix."""
    try:
        yield
    except ServingError as error:
        prefixed = copy(error)  # another caller may hold the error, too
        prefixed.args = (f"{what}: {error}",)
        raise prefixed from error


def _visible(names: Iterable[str], models: Patterns) -> list[str]:
    return [each for each in names if models is None or matches(models, each)]


def _shown(name: str, version: str) -> str:
    return f"{name[:256]!r} version {version}" if version else repr(name[:256])


def _number(version: str) -> int | None:
    if not version:
        return None
    if not (version.isascii() and version.isdigit()) or len(version) > 20 or int(version) > _INT64_MAX:
        raise InvalidRequest(f"Model version is {version[:64]!r}; expected a whole number")
    return int(version)
