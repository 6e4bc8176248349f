"""Configurations in HDF5 files of older Keras, changed where they say too much or too little.

- Arguments that Keras 3 no longer has are left out where they have the value that it always has.
- A Sequential model that does not say what its input is gets the shape from its first layer's weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py

_SHAPES = ("batch_input_shape", "batch_shape", "input_shape", "build_input_shape", "input_dim")


#: Arguments of layers that Keras 3 does not have, and the value that it always has.
_GONE: Mapping[str, object] = {"time_major": False, "groups": 1, "rng_type": "stateful"}

#: The layers that still have them.
_STILL = {"groups": ("Conv1D", "Conv2D", "Conv3D")}


def readable_config(config: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """The configuration of an HDF5 file as both libraries read it; None if it needs no change."""
    changed = json.loads(json.dumps(config))
    gone = sum(_without_gone(node) for node in _objects(changed))
    return _with_input_shape(changed, path) or (changed if gone else None)


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """All objects in a configuration."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _without_gone(node: dict[str, Any]) -> int:
    """Removes such arguments of one layer; returns how many."""
    inner = node.get("config")
    if not isinstance(inner, dict):
        return 0
    layer = node.get("class_name")
    gone = [key for key, value in _GONE.items() if inner.get(key) == value and layer not in _STILL.get(key, ())]
    for key in gone:
        del inner[key]
    return len(gone)


def _with_input_shape(config: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """The configuration of an HDF5 file with the shape of its input; None if it says that, or nothing can be told."""
    inner = config["config"]
    layers = inner if isinstance(inner, list) else inner.get("layers")
    if config.get("class_name") != "Sequential" or not isinstance(layers, list) or not layers:
        return None
    if isinstance(inner, dict) and inner.get("build_input_shape"):
        return None
    first = layers[0]
    own = first.get("config") if isinstance(first, dict) else None
    if not isinstance(own, dict) or any(own.get(key) for key in _SHAPES) or first.get("class_name") == "Model":
        return None
    shape = _input_shape(str(first.get("class_name")), str(own.get("name")), path)
    if shape is None:
        return None
    changed = [{**first, "config": {**own, "batch_input_shape": shape}}, *layers[1:]]
    return {**config, "config": changed if isinstance(inner, list) else {**inner, "layers": changed}}


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
    if layer.startswith("Conv") and layer.endswith("D") and not layer.endswith("TransposeD"):
        return [None, *[None] * (len(kernel) - 2), kernel[-2]]
    return None


def _kernel(layer: str, path: Path) -> tuple[int, ...] | None:
    """The shape of the first weight of a layer."""
    with h5py.File(path, "r") as file:
        group = file.get(f"model_weights/{layer}")
        names = group.attrs.get("weight_names", ()) if group is not None else ()
        if not len(names):
            return None
        first = names[0].decode() if isinstance(names[0], bytes) else str(names[0])
        found = group.get(first)
        return tuple(found.shape) if isinstance(found, h5py.Dataset) else None
