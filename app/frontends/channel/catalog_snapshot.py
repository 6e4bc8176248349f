"""The engine's catalog as a message: all versions of all models, with signatures of those that can be called."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from app.core.batch_sizes import BatchSizes
from app.core.events import ignore
from app.core.inference import ModelSignature
from app.core.interfaces import ServedModel
from app.core.versions import ModelProblem, ProblemKind, VersionState
from app.repository.catalog import Catalog
from app.repository.servable import Servable

if TYPE_CHECKING:
    from app.model import Model


class CatalogSnapshot(NamedTuple):
    """The fields of CATALOG.

    Attributes:
        known: see ModelRepository.known_names.
        models: by name, for each version: its number, state, error, whether it failed, and its model's id or None.
        described: by model id, what `read_description` reads.
        alone: names of models whose policy runs each request alone.
        padded: by model id, the signatures whose requests are padded to share calls.
        held: see Catalog, by name; for each version the fields of its ModelProblem.
        missing: by model id, why it answers no requests; of those that answer none.
        notes: by model id, how it was loaded; of those of which that is unusual.
    """

    complete: bool
    default_model: str
    known: Sequence[str]
    labels: Mapping[str, Mapping[str, int]]
    models: Mapping[str, Sequence[tuple[int, str, str, bool, int | None]]]
    described: Mapping[int, bytes]
    alone: Sequence[str]
    padded: Mapping[int, Sequence[str]]
    held: Mapping[str, Sequence[tuple[str, int, str, str]]]
    missing: Mapping[int, str]
    notes: Mapping[int, str]


def take_snapshot(
    catalog: Catalog, known: Sequence[str], id_of: Callable[[ServedModel], int], runs_alone: Callable[[str], bool]
) -> CatalogSnapshot:
    """`id_of` gives each model in memory a number; `runs_alone` takes a model's name."""
    callable_models = {id_of(each.model): each.model for each in catalog.servables() if each.model}
    return CatalogSnapshot(
        catalog.complete,
        catalog.default_model,
        known,
        {name: dict(labels) for name, labels in catalog.labels.items()},
        {name: [_version(each, id_of) for each in servables.values()] for name, servables in catalog.models.items()},
        {number: describe(model) for number, model in callable_models.items()},
        tuple(filter(runs_alone, sorted({model.name for model in callable_models.values()}))),
        {number: tuple(filter(model.pads, model.signatures)) for number, model in callable_models.items()},
        {name: [_problem(each) for each in held.values()] for name, held in catalog.held.items()},
        {number: model.missing for number, model in callable_models.items() if model.missing},
        {number: model.note for number, model in callable_models.items() if model.note},
    )


def read_snapshot(
    catalog: Catalog, snapshot: CatalogSnapshot, model_of: Callable[[int, str, int], ServedModel]
) -> None:
    """Makes a catalog equal to the one of which the snapshot was taken.

    `model_of` makes the model of an id, a name and a version.
    """
    catalog.default_model, catalog.complete = snapshot.default_model, snapshot.complete
    catalog.labels, catalog.models = snapshot.labels, {}
    catalog.held = {
        name: {version: ModelProblem(model, version, ProblemKind(kind), text) for model, version, kind, text in held}
        for name, held in snapshot.held.items()
    }
    for name, versions in snapshot.models.items():
        servables = catalog.models[name] = {}
        for version, state, error, failed, number in versions:
            servable = servables[version] = Servable(name, version, ignore)
            servable.state, servable.error = VersionState(state), error
            servable.failed_on = frozenset() if failed else None
            if number is not None:
                servable.model = cast("Model", model_of(number, name, version))  # it has what protocols call


def _problem(problem: ModelProblem) -> tuple[str, int, str, str]:
    return problem.model, problem.version or 0, str(problem.kind), problem.text


def _version(servable: Servable, id_of: Callable[[ServedModel], int]) -> tuple[int, str, str, bool, int | None]:
    number = id_of(servable.model) if servable.model else None
    return servable.version, str(servable.state), servable.error, servable.failed_on is not None, number


def describe(model: ServedModel) -> bytes:
    """The sizes and signatures of a model, and whether it is a pipeline, as a pickle: both ends are Ferry."""
    return pickle.dumps((model.sizes, dict(model.signatures), model.pipeline))


def read_description(description: bytes) -> tuple[BatchSizes, dict[str, ModelSignature], bool]:
    found: tuple[BatchSizes, dict[str, ModelSignature], bool] = pickle.loads(description)  # noqa: S301 - from Ferry
    return found
