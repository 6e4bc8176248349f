"""The engine's catalog as a message: all versions of all models, with signatures of those that can be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from app.core.batch_sizes import BatchSizes
from app.core.events import ignore
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import STRING, Array, ModelSignature, TensorSpec, dtype_name, string_array
from app.core.interfaces import ServedModel
from app.core.versions import ModelProblem, ProblemKind, VersionState
from app.frontends.channel.tensor_messages import dtype_of
from app.repository.catalog import Catalog
from app.repository.servable import Servable

if TYPE_CHECKING:
    from app.model import Model


class CatalogSnapshot(NamedTuple):
    """The fields of CATALOG.

    Attributes:
        known: see ModelRepository.known_names.
        models: by name, for each version: its number, state, error, whether it failed, and its model's id or None.
        described: by model id, its batch sizes, signatures, and whether it is a pipeline.
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
    described: Mapping[int, tuple[Any, ...]]
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
        {number: _description(model) for number, model in callable_models.items()},
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


def _description(model: ServedModel) -> tuple[Any, ...]:
    signatures = [
        (
            *(each.name, each.method_name, _specs(each.inputs), _specs(each.outputs)),
            *(dict(each.masks), dict(each.alone), each.finite_only, dict(each.labels), each.mixed_rows),
            {name: _array(value) for name, value in each.defaults.items()},
            *(_graph_rows(each.graph_rows), each.most_rows),
        )
        for each in model.signatures.values()
    ]
    return model.sizes.allowed, signatures, model.pipeline


def _graph_rows(known: GraphRows | None) -> tuple[Any, ...] | None:
    if known is None:
        return None
    outputs = {name: tuple(found) for name, found in known.outputs.items()}
    return outputs, sorted(known.row_inputs), sorted(known.shared), known.unequal


def _read_graph_rows(content: tuple[Any, ...] | None) -> GraphRows | None:
    if content is None:
        return None
    outputs, row_inputs, shared, unequal = content
    found = {name: OutputRows(*each) for name, each in outputs.items()}
    return GraphRows(found, frozenset(row_inputs), frozenset(shared), unequal)


def _array(array: Array) -> tuple[str, tuple[int, ...], bytes | list[bytes]]:
    content = array.reshape(-1).tolist() if array.dtype == STRING else array.tobytes()
    return dtype_name(array.dtype), array.shape, content


def _read_array(dtype: str, shape: tuple[int, ...], content: bytes | Sequence[bytes]) -> Array:
    return np.ndarray(shape, dtype_of(dtype), content) if isinstance(content, bytes) else string_array(content, shape)


def _specs(specs: Mapping[str, TensorSpec]) -> list[tuple[Any, ...]]:
    return [(name, each.name, dtype_name(each.dtype), each.shape, each.tensor_name) for name, each in specs.items()]


def read_description(description: tuple[Any, ...]) -> tuple[BatchSizes, dict[str, ModelSignature], bool]:
    sizes, signatures, pipeline = description
    found = {
        name: ModelSignature(
            name,
            _read_specs(inputs),
            _read_specs(outputs),
            method,
            masks=masks,
            alone=alone,
            finite_only=finite_only,
            labels={output: tuple(named) for output, named in labels.items()},
            mixed_rows=mixed_rows,
            strict_names=pipeline,
            defaults={name: _read_array(*value) for name, value in defaults.items()},
            graph_rows=_read_graph_rows(graph_rows),
            most_rows=most_rows,
        )
        for (
            name,
            method,
            inputs,
            outputs,
            masks,
            alone,
            finite_only,
            labels,
            mixed_rows,
            defaults,
            graph_rows,
            most_rows,
        ) in signatures
    }
    return BatchSizes(tuple(sizes)), found, pipeline


def _read_specs(specs: Sequence[tuple[Any, ...]]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(own_name, dtype_of(dtype), shape, tensor_name)
        for name, own_name, dtype, shape, tensor_name in specs
    }
