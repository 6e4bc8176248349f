"""The functions of a SavedModel without signatures, as endpoints: `__call__`, and functions with other names.

1. No Python code comes from a SavedModel: `tf.saved_model.load` restores traced functions only. What Keras wrote beside
   them (keras_metadata.pb, with code of lambda layers) is never read.
2. A function has a trace for each kind of arguments. The one for inference is taken: flags such as `training` are
   False, masks are left out, and any number of rows fits where one trace allows that.
3. Inputs are named as the arguments, outputs by the structure of the result, else by the layer that computes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import DEFAULT_SIGNATURE, Array
from app.importing.graphs.graph_source import check_meta_graph
from app.importing.order import CannotImport
from app.importing.source import Endpoint, Source, Tensors
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.graph_nodes import CALLS
from app.runtimes.tensorflow.saved_model.loading_folder import LoadingFolder

#: Names of functions in the order in which one becomes the default signature.
_DEFAULTS = ("__call__", "serve", "predict", "call", "infer", "inference", "forward", "f", "fn")

#: Beginnings of names of functions that are not for callers: private ones, of training, and Keras' own forms of a call.
_NOT_FOR_CALLERS = (
    "_",
    "train",
    "fit",
    "test_step",
    "loss",
    "compute_",
    "reset",
    "restore",
    "save",
    "call_and_return_",
)

_SPECS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)

#: An argument: its place in a structure of arguments, and its tf.TypeSpec or value.
_Leaf = tuple[tuple[str | int, ...], Any]


def read_callables(path: Path, meta_graph: Any, tags: Sequence[str]) -> Source:
    """The functions of the SavedModel in folder `path` that callers can use. Raises CannotImport: it has none."""
    objects = meta_graph.object_graph_def
    functions = _functions(objects)
    if not functions:
        raise CannotImport(
            "the SavedModel has neither signatures nor functions that were traced; where its code is, save it with "
            "signatures, as docs/export-from-memory.md shows"
        )
    check_meta_graph(meta_graph, [name for names in functions.values() for name in names])
    folder = LoadingFolder(path, meta_graph)
    try:
        with private_api.quiet():
            loaded = tf.saved_model.load(str(folder.path), tags=list(tags))
    except Exception as error:  # whatever TensorFlow raises for a broken SavedModel
        raise CannotImport(f"TensorFlow cannot load it: {first_meaningful_line(error)}") from None
    names = _signature_names(functions)
    made = [_Callable(name, getattr(loaded, name), (loaded, folder)) for name in names]
    usable = [each for each in made if each.trace is not None]
    if not usable:
        raise CannotImport(f"its functions {', '.join(functions)} have no trace that takes tensors")
    notes = [note for note in map(_Callable.note, usable) if note]
    first, *others = usable
    endpoints = [first.endpoint(DEFAULT_SIGNATURE), *[each.endpoint(each.name) for each in others]]
    return Source("SavedModel without signatures", endpoints, kept=_kept(loaded), notes=notes)


def _functions(objects: Any) -> dict[str, list[str]]:
    """The functions at the root of an object graph, and the names of their traces."""
    found: dict[str, list[str]] = {}
    for child in objects.nodes[0].children if objects.nodes else ():
        traces = list(objects.nodes[child.node_id].function.concrete_functions)
        name = child.local_name
        if traces and (name == "__call__" or not name.startswith(_NOT_FOR_CALLERS)):
            found[name] = traces
    return found


def _signature_names(functions: Mapping[str, Any]) -> list[str]:
    """The names of functions, that of the default signature first. `call` is what `__call__` runs."""
    names = [name for name in functions if not (name == "call" and "__call__" in functions)]
    return sorted(names, key=lambda name: (_DEFAULTS.index(name) if name in _DEFAULTS else len(_DEFAULTS), name))


def _kept(loaded: Any) -> list[Any]:
    """The variables, tables and assets of a loaded object: what functions use, without the functions."""
    parts = tf.train.TrackableView(loaded).descendants()
    return [
        each
        for each in parts
        if isinstance(each, (tf.Variable, tf.saved_model.Asset)) or hasattr(each, "resource_handle")
    ]


class _Callable:
    """A function of a loaded SavedModel.

    Args:
        alive: objects that must live as long.

    Attributes:
        trace: its trace for inference; None if there is none.
    """

    def __init__(self, name: str, function: Any, alive: Any) -> None:
        self.name = name
        self._function = function
        self._alive = alive
        traces = [each for each in function.concrete_functions if _takes_tensors(each)]
        self.trace: Any = max(traces, key=_fitness, default=None)

    def note(self) -> str:
        """A remark on the function; empty if there is none."""
        fixed = [spec for _, spec in _tensors(self.trace) if spec.shape.rank and spec.shape[0] is not None]
        return f"function {self.name!r} was traced for a fixed number of rows, {fixed[0].shape[0]}" if fixed else ""

    def endpoint(self, signature: str) -> Endpoint:
        leaves = _tensors(self.trace)
        names = _names(leaves)
        outputs = _OutputNames(self.trace)

        def call(tensors: Tensors) -> Tensors:
            given = {place: tensors[name] for name, (place, _) in zip(names, leaves, strict=True)}
            args, kwargs = (_rebuilt(each, given, (n,)) for n, each in enumerate(self.trace.structured_input_signature))
            return outputs.named(self._function(*args, **kwargs))

        def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
            results = call({name: _tensor(array) for name, array in arrays.items()})
            return {name: np.asarray(each.numpy()) for name, each in results.items()}

        inputs = {name: _named_spec(spec, name) for name, (_, spec) in zip(names, leaves, strict=True)}
        return Endpoint(inputs, call, run, signature)


def _tensor(array: Any) -> Any:
    return tf.constant(array) if isinstance(array, np.ndarray) else array


def _named_spec(spec: Any, name: str) -> Any:
    return tf.TensorSpec(spec.shape, spec.dtype, name) if isinstance(spec, tf.TensorSpec) else spec


# --- arguments ---


def _leaves(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[_Leaf]:
    """The arguments in a structure of tuples, lists and dictionaries."""
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], (*place, key))
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _leaves(each, (*place, number))
    else:
        yield place, value


def _rebuilt(value: Any, given: Mapping[tuple[str | int, ...], Any], place: tuple[str | int, ...]) -> Any:
    """A structure of arguments with tensors in place of their specs."""
    if isinstance(value, Mapping):
        return {key: _rebuilt(each, given, (*place, key)) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_rebuilt(each, given, (*place, number)) for number, each in enumerate(value)]
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return tuple(parts) if isinstance(value, tuple) else parts
    return given.get(place, value)


def _tensors(trace: Any) -> list[_Leaf]:
    return [(place, spec) for place, spec in _leaves(trace.structured_input_signature) if isinstance(spec, _SPECS)]


def _takes_tensors(trace: Any) -> bool:
    leaves = _tensors(trace)
    return bool(leaves) and all(spec.dtype not in {tf.resource, tf.variant} for _, spec in leaves)


def _fitness(trace: Any) -> tuple[int, ...]:
    """How well a trace suits inference: the more the better, in this order."""
    flags = [value for _, value in _leaves(trace.structured_input_signature) if isinstance(value, bool)]
    specs = [spec for _, spec in _tensors(trace)]
    free = sum(spec.shape.rank is None or None in spec.shape[:1] for spec in specs)
    open_sizes = sum(list(spec.shape).count(None) for spec in specs if spec.shape.rank)
    return (-sum(flags), -len(specs), free, open_sizes)


def _names(leaves: Sequence[_Leaf]) -> list[str]:
    """The names of arguments: those in the structure, else those of their specs."""
    names = []
    for number, (place, spec) in enumerate(leaves):
        last = place[-1]
        own = getattr(spec, "name", None) or ""
        names.append(last if isinstance(last, str) else own.rpartition("/")[2] or f"input_{number}")
    count = Counter(names)
    return [
        name if count[name] == 1 else "/".join(map(str, place[1:]))
        for name, (place, _) in zip(names, leaves, strict=True)
    ]


# --- results ---


class _OutputNames:
    """The names of the results of a trace: those in their structure, else those of layers."""

    def __init__(self, trace: Any) -> None:
        structure = trace.structured_outputs
        places = [place for place, _ in _leaves(structure)]
        layers = _layer_names(trace) if len(trace.outputs) == len(places) else [""] * len(places)
        wanted = [_place_name(place) or layer for place, layer in zip(places, layers, strict=True)]
        count = Counter(wanted)
        self._names = [
            name if name and count[name] == 1 else _numbered(name or "output", place, len(places))
            for name, place in zip(wanted, places, strict=True)
        ]

    def named(self, results: Any) -> dict[str, Any]:
        values = [value for _, value in _leaves(results)]
        return {name: value for name, value in zip(self._names, values, strict=True) if tf.is_tensor(value)}


def _place_name(place: tuple[str | int, ...]) -> str:
    """The keys of a result's place, without numbers of lists of one."""
    return "/".join(str(each) for each in place if isinstance(each, str))


def _numbered(name: str, place: tuple[str | int, ...], count: int) -> str:
    numbers = "_".join(str(each) for each in place if isinstance(each, int))
    return f"{name}_{numbers}" if count > 1 and numbers else name


def _layer_names(trace: Any) -> list[str]:
    """For each result of a trace, the name of the layer or operation that computes it; empty if it has no own one."""
    return [_own_name(*_origin(output.op)) for output in trace.outputs]


def _origin(operation: Any) -> tuple[str, str]:
    """The name and type of the operation behind copies; one inside a called function is not looked for."""
    while operation.type == "Identity" and operation.inputs:
        operation = operation.inputs[0].op
    return ("", "") if operation.type in CALLS | {"Placeholder"} else (operation.name, operation.type)


def _own_name(name: str, kind: str) -> str:
    layers, _, last = name.rpartition("/")
    if layers:
        return layers.rpartition("/")[2]
    plain = last.rstrip("0123456789").rstrip("_").lower()
    return "" if plain in {kind.lower(), kind.lower().removesuffix("v2"), ""} else last
