"""The engine's catalog as a message: all versions of all models, with signatures of those that can be called.

It travels as a pickle, and so does each model in it: both ends are Ferry.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from app.core.events import ignore
from app.core.interfaces import ServedModel
from app.core.versions import ModelProblem, VersionState
from app.repository.catalog import Catalog
from app.repository.servable import Servable

if TYPE_CHECKING:
    from app.model import Model


class CatalogSnapshot(NamedTuple):
    """The content of CATALOG.

    Attributes:
        known: see ModelRepository.known_names.
        models: by name, for each version: its number, state, error, whether it failed, and its model's id or None.
        described: by model id, what RemoteModel.describe takes, as a pickle: not all of it counts when it is compared.
        held: see Catalog.
    """

    complete: bool = False
    default_model: str = ""
    known: Sequence[str] = ()
    labels: Mapping[str, Mapping[str, int]] = {}
    models: Mapping[str, Sequence[tuple[int, VersionState, str, bool, int | None]]] = {}
    described: Mapping[int, bytes] = {}
    held: Mapping[str, dict[int, ModelProblem]] = {}


def take_snapshot(
    catalog: Catalog, known: Sequence[str], id_of: Callable[[ServedModel], int], runs_alone: Callable[[str], bool]
) -> CatalogSnapshot:
    """`id_of` gives each model in memory a number; `runs_alone` takes a model's name."""
    return CatalogSnapshot(
        catalog.complete,
        catalog.default_model,
        known,
        {name: dict(labels) for name, labels in catalog.labels.items()},
        {name: [_version(each, id_of) for each in servables.values()] for name, servables in catalog.models.items()},
        {id_of(each.model): _described(each.model, runs_alone) for each in catalog.servables() if each.model},
        {name: dict(held) for name, held in catalog.held.items()},
    )


def read_snapshot(
    catalog: Catalog, snapshot: CatalogSnapshot, model_of: Callable[[int, str, int], ServedModel]
) -> None:
    """Makes a catalog equal to the engine's, as the snapshot has it.

    `model_of` makes the model of an id, a name and a version.
    """
    catalog.default_model, catalog.complete = snapshot.default_model, snapshot.complete
    catalog.labels, catalog.held, catalog.models = snapshot.labels, dict(snapshot.held), {}
    for name, versions in snapshot.models.items():
        servables = catalog.models[name] = {}
        for version, state, error, failed, number in versions:
            servable = servables[version] = Servable(name, version, ignore)
            servable.state, servable.error = state, error
            servable.failed_on = frozenset() if failed else None
            if number is not None:
                servable.model = cast("Model", model_of(number, name, version))  # it has what protocols call


def _version(
    servable: Servable, id_of: Callable[[ServedModel], int]
) -> tuple[int, VersionState, str, bool, int | None]:
    number = id_of(servable.model) if servable.model else None
    return servable.version, servable.state, servable.error, servable.failed_on is not None, number


def _described(model: ServedModel, runs_alone: Callable[[str], bool]) -> bytes:
    padded = tuple(filter(model.pads, model.signatures))
    known = model.sizes, dict(model.signatures), model.pipeline, runs_alone(model.name), padded
    return pickle.dumps((*known, model.missing, model.note))
