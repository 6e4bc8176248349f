"""Configurations in HDF5 files of older Keras, changed where a library would not read them as they are.

- For both: a Sequential model that does not say what its input is gets the shape from its first layer's weights.
- For Keras 3: arguments that it no longer has are left out where they have the value that it always has; the input of a
  Sequential model is a layer of its own; names of types and modules are those of Keras 3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py

_SHAPES = ("batch_input_shape", "batch_shape", "input_shape", "build_input_shape", "input_dim")

#: Arguments that Keras 3 does not have, and the value that it always has.
_GONE: Mapping[str, object] = {"time_major": False, "groups": 1, "rng_type": "stateful"}

#: The layers that still have them.
_STILL: Mapping[str, Sequence[str]] = {"groups": ("Conv1D", "Conv2D", "Conv3D")}

#: Arguments without effect that only some layers had, by what their names begin with.
_OF_SEPARABLE = ("kernel_initializer", "kernel_regularizer", "kernel_constraint")

Config = dict[str, Any]


def with_input_shape(config: Config, path: Path) -> Config | None:
    """The configuration of an HDF5 file with the shape of its input; None if it says that, or nothing can be told."""
    layers = _layers_of_sequential(config)
    inner = config["config"]
    if not layers or (isinstance(inner, dict) and inner.get("build_input_shape")):
        return None
    first = layers[0]
    own = first.get("config") if isinstance(first, dict) else None
    if not isinstance(own, dict) or any(own.get(key) for key in _SHAPES):
        return None
    shape = _input_shape(str(first.get("class_name")), str(own.get("name")), path)
    if shape is None:
        return None
    return _with_layers(config, [{**first, "config": {**own, "batch_input_shape": shape}}, *layers[1:]])


def for_keras_3(config: Config) -> Config:
    """The configuration as Keras 3 reads it."""
    changed: Config = json.loads(json.dumps(config))
    for node in _objects(changed):
        inner = node.get("config")
        if isinstance(inner, dict):
            _without_gone(str(node.get("class_name")), inner)
            _with_modules(inner)
            _with_plain_types(inner)
    return _with_input_layer(changed)


def _objects(value: object) -> Iterator[Config]:
    """All objects in a configuration."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _without_gone(layer: str, inner: Config) -> None:
    for key, value in _GONE.items():
        if inner.get(key) == value and layer not in _STILL.get(key, ()):
            del inner[key]
    for key in _OF_SEPARABLE if layer.startswith("Separable") else ():
        inner.pop(key, None)


def _with_modules(inner: Config) -> None:
    """A layer inside a layer (Bidirectional, TimeDistributed) is looked up by its module."""
    for key in ("layer", "forward_layer", "backward_layer"):
        if isinstance(layer := inner.get(key), dict) and "class_name" in layer:
            layer.setdefault("module", "keras.layers")
            layer.setdefault("registered_name", None)


def _with_plain_types(inner: Config) -> None:
    """A policy is its name; initializers have no type of their own."""
    policy = inner.get("dtype")
    if isinstance(policy, dict) and str(policy.get("class_name")).startswith("Policy"):
        inner["dtype"] = policy.get("config", {}).get("name")
    for key, found in inner.items():
        if key.endswith("initializer") and isinstance(found, dict) and isinstance(found.get("config"), dict):
            found["config"].pop("dtype", None)


def _with_input_layer(config: Config) -> Config:
    """A Sequential model whose first layer tells the shape of the input gets a layer for it."""
    layers = _layers_of_sequential(config)
    own = layers[0].get("config") if layers and isinstance(layers[0], dict) else None
    if not isinstance(own, dict) or layers[0].get("class_name") == "InputLayer":
        return config
    if (shape := own.pop("batch_input_shape", None)) is None:
        return config
    name = f"{own.get('name', layers[0].get('class_name'))}_input"  # as Keras 2 calls it
    own_type = own.get("dtype")
    dtype = own_type if isinstance(own_type, str) and "mixed" not in own_type else "float32"
    first = {"class_name": "InputLayer", "config": {"batch_shape": shape, "dtype": dtype, "name": name}}
    return _with_layers(config, [first, *layers])


def _layers_of_sequential(config: Config) -> list[Any]:
    """Empty for another model."""
    inner = config["config"]
    layers = inner if isinstance(inner, list) else inner.get("layers")
    return layers if config.get("class_name") == "Sequential" and isinstance(layers, list) else []


def _with_layers(config: Config, layers: list[Any]) -> Config:
    inner = config["config"]
    return {**config, "config": layers if isinstance(inner, list) else {**inner, "layers": layers}}


# --- shapes from weights ---


def _input_shape(layer: str, name: str, path: Path) -> list[int | None] | None:
    """The shape of the input of a layer that has a kernel; free where the kernel does not say."""
    kernel = _kernel(name, path)
    if layer == "Embedding":
        return [None, None]
    if kernel is None:
        return None
    if layer == "Dense" and len(kernel) == 2:
        return [None, kernel[0]]
    if layer in {"LSTM", "GRU", "SimpleRNN"} and len(kernel) == 2:
        return [None, None, kernel[0]]
    if layer in {"Conv1D", "Conv2D", "Conv3D"}:
        return [None, *[None] * (len(kernel) - 2), kernel[-2]]
    return None


def _kernel(layer: str, path: Path) -> Sequence[int] | None:
    """The shape of the first weight of a layer."""
    with h5py.File(path, "r") as file:
        group = file.get(f"model_weights/{layer}")
        names = list(group.attrs.get("weight_names", [])) if group is not None else []
        if not names:
            return None
        found = group.get(names[0].decode() if isinstance(names[0], bytes) else str(names[0]))
        return tuple(found.shape) if isinstance(found, h5py.Dataset) else None
