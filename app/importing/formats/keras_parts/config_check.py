"""The check of a model's configuration, before Keras makes anything of it.

1. Its size is bounded: bytes, depth, layers, numbers of units, sizes of inputs.
2. Each class and function that it names is one of the library's (known_classes.py), or of a known package of layers
   that is installed. Others, and layers that hold code, are for `--trust` alone; a text names the first of them.
3. It names no file: a vocabulary is in the archive, or in the configuration.

Keras has a safe mode, which had holes (CVE-2024-3660, CVE-2025-1550, 8747, 9905, 9906, 12058, 12060), and which HDF5
files never had. So nothing here depends on it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from typing import Any

from app.importing.formats.keras_parts.known_classes import DANGEROUS, KnownClasses
from app.importing.formats.keras_parts.tf_op_layers import why_refused
from app.importing.order import CannotImport
from app.runtimes.tensorflow.graph_nodes import names

#: The most bytes of a configuration. Chosen: a hundred times the largest of keras.applications.
MOST_BYTES = 64 << 20

#: The most layers, nested ones included. Chosen: Keras makes some 1,000 a second.
MOST_LAYERS = 20_000

#: The most values in a configuration, and its greatest depth; parsers of Python end at some 1,000.
_MOST_VALUES = 5_000_000
_MOST_DEPTH = 200

#: The most numbers in one row of an input: 4 GiB as float32.
_MOST_NUMBERS = 1 << 30

#: Sizes that make variables: none is larger than the numbers in the file of the weights.
_SIZES_OF_VARIABLES = frozenset(
    {"units", "filters", "input_dim", "output_dim", "hidden_dim", "intermediate_dim", "vocabulary_size", "num_heads"}
)

#: Weights of four bits take half a byte; a size that small is never refused.
_NUMBERS_IN_A_BYTE = 2
_SMALL = 1 << 16

_SHAPES = frozenset({"batch_shape", "batch_input_shape", "input_shape"})

#: Fields that are read as the path of a file, if they are texts.
_PATHS = frozenset({"vocabulary", "vocabulary_file", "idf_weights", "merges", "proto", "filepath", "file_path"})

#: Packages of layers that are known to register their classes when they are imported: what `pip` calls them.
_PACKAGES = {
    "keras_hub": "keras-hub",
    "keras_nlp": "keras-nlp",
    "keras_cv": "keras-cv",
    "tensorflow_addons": "tensorflow-addons",
}
_REGISTERED_AS = {"Addons": "tensorflow_addons"}

#: What a person may do where the file tells the module of a class.
_TRUST = "; if you trust whoever made it, --trust imports that module where it is installed"

#: What is no class, though it stands where a class stands.
_PLAIN = names("""
    __keras_tensor__ __tensor__ __numpy__ __bytes__ __ellipsis__ __slice__ __tuple__ __wrapped__ TensorShape
""")

#: Specifications of types of TensorFlow that an input may have.
_TYPE_SPECS = frozenset(
    {
        "TensorSpec",
        "tf.TensorSpec",
        "RaggedTensorSpec",
        "tf.RaggedTensorSpec",
        "SparseTensorSpec",
        "tf.SparseTensorSpec",
    }
)


@dataclass(frozen=True, slots=True)
class Limits:
    """weights_bytes: the bytes of the weights, inflated. trust: whether code of the file may run."""

    weights_bytes: int
    trust: bool


def parse_config(text: str | bytes) -> dict[str, Any]:
    """A configuration as Keras parses it. Raises CannotImport."""
    if len(text) > MOST_BYTES:
        raise CannotImport(f"its configuration has {len(text):,} bytes; at most {MOST_BYTES:,} are read")
    try:
        config = json.loads(text)
    except RecursionError:
        raise CannotImport("its configuration is nested too deeply") from None
    except ValueError as error:
        raise CannotImport(f"its configuration is no JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict | list):
        raise CannotImport("its configuration is no model's: an object with 'class_name' and 'config' is expected")
    return config


def check_size(config: Mapping[str, Any]) -> None:
    """Raises CannotImport: there are too many layers or values, or they are nested too deeply."""
    values = layers = 0
    for node, depth in _nodes(config):
        values += len(node)
        if isinstance(node, dict) and isinstance(listed := node.get("layers"), list):
            layers += len(listed)
        if layers > MOST_LAYERS:
            raise CannotImport(f"it has {layers:,} layers; at most {MOST_LAYERS:,} are read")
        if values > _MOST_VALUES or depth > _MOST_DEPTH:
            raise CannotImport(
                f"its configuration has more than {_MOST_VALUES:,} values, or is nested deeper than {_MOST_DEPTH}"
            )


def _nodes(config: object) -> Iterator[tuple[dict[str, Any] | list[Any], int]]:
    """All objects and lists with their depth, without recursion."""
    waiting: list[tuple[Any, int]] = [(config, 1)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, dict | list):
            yield node, depth
            waiting.extend((each, depth + 1) for each in (node.values() if isinstance(node, dict) else node))


def _check_functions_are_named(node: Mapping[str, Any]) -> None:
    """Raises CannotImport: Keras 2 wrote the name of a lambda, and no code."""
    if key := next((key for key, value in node.items() if value == "<lambda>"), ""):
        raise CannotImport(
            f"{_named(node)} has a lambda as {key}, whose code is not in the file; where its code is, export the model "
            "(docs/export-from-memory.md)"
        )


class ConfigCheck:
    """The check of one configuration for one library; `custom` are classes for Keras to use, found with `--trust`."""

    def __init__(self, known: KnownClasses, limits: Limits) -> None:
        self.custom: dict[str, Any] = {}
        self._known = known
        self._limits = limits

    def run(self, config: Mapping[str, Any]) -> None:
        """Raises CannotImport: the configuration names what may not be used, or sizes that cannot be."""
        for node, _ in _nodes(config):
            if isinstance(node, dict):
                self._sizes(node)
                self._paths(node)
                _check_functions_are_named(node)
                if isinstance(name := node.get("class_name"), str):
                    self._class(name, node)

    # --- sizes and paths ---

    def _sizes(self, node: Mapping[str, Any]) -> None:
        most = max(_SMALL, self._limits.weights_bytes * _NUMBERS_IN_A_BYTE)
        for key in _SIZES_OF_VARIABLES & node.keys():
            if isinstance(size := node[key], int) and size > most:
                raise CannotImport(
                    f"{_named(node)} has {key} {size:,}, but the weights in the file have "
                    f"{self._limits.weights_bytes:,} bytes"
                )
        for key in _SHAPES & node.keys():
            sizes = [size for size in _flat(node[key]) if isinstance(size, int)]
            if any(size < 0 for size in sizes) or prod(sizes) > _MOST_NUMBERS:
                raise CannotImport(
                    f"{_named(node)} has {key} {_short(node[key])}; at most {_MOST_NUMBERS:,} numbers a row are read"
                )

    def _paths(self, node: Mapping[str, Any]) -> None:
        if self._limits.trust:
            return
        for key in _PATHS & node.keys():
            if isinstance(path := node[key], str) and path:
                raise CannotImport(
                    f"{_named(node)} reads the file {_short(path)} ({key}), which is not in the source; "
                    "--trust allows it"
                )

    # --- classes and functions ---

    def _class(self, name: str, node: Mapping[str, Any]) -> None:
        inner = node.get("config")
        if name in _PLAIN or (name != "function" and "config" not in node and "type_spec" not in node):
            return
        if name in {"TypeSpec", "__typespec__"}:
            self._type_spec(node)
            return
        if name in DANGEROUS:
            self._only_trusted(f"{_named(node)} is a {name}, which {DANGEROUS[name]}")
            return
        module = node.get("module")
        if module is not None and not isinstance(module, str):
            raise CannotImport(f"{_named(node)} names no module, but {_short(module)}")
        if name == "function":
            if not isinstance(inner, str) or not self._known.has_function(module, inner):
                self._custom(str(inner), module, node)
        elif not self._known.has_class(module, name):
            self._custom(name, module, node)
        elif isinstance(inner, dict) and (reason := why_refused(name, inner)):
            self._only_trusted(f"{_named(node)} {reason}")

    def _type_spec(self, node: Mapping[str, Any]) -> None:
        spec = node.get("type_spec", node.get("spec_name"))
        if spec not in _TYPE_SPECS:
            self._only_trusted(f"{_named(node)} has the type {_short(spec)}, which is none of TensorFlow's tensors")

    def _custom(self, name: str, module: str | None, node: Mapping[str, Any]) -> None:
        """A class or function of others: of a known package, or, with trust, of an installed module."""
        registered = node.get("registered_name")
        registered = registered if isinstance(registered, str) else name
        if (package := _package(module, registered)) is not None:
            _import_package(package, f"{_named(node)} is a {name}")
        elif module is None or module == "builtins" or not self._limits.trust:
            origin = f"{module}.{name}" if module else name
            raise CannotImport(
                f"{_named(node)} is a {_short(origin)}, which is no class of Keras, and its code is not in the file"
                f"{_TRUST if module and module != 'builtins' else ''}; "
                "where its code is, export the model (docs/export-from-memory.md)"
            )
        elif (found := _found(module, name)) is not None:
            self.custom |= {name: found, registered: found}

    def _only_trusted(self, what: str) -> None:
        if not self._limits.trust:
            raise CannotImport(f"{what}; --trust lets it run, if you trust whoever made the file")


def _package(module: str | None, registered: str) -> str | None:
    """The known package that a class comes from."""
    if module and (root := module.split(".", maxsplit=1)[0]) in _PACKAGES:
        return root
    prefix = registered.split(">", maxsplit=1)[0] if ">" in registered else ""
    prefix = _REGISTERED_AS.get(prefix, prefix)
    return prefix if prefix in _PACKAGES else None


def _import_package(package: str, what: str) -> None:
    """Imports a known package, which registers its classes. Raises CannotImport: it is not installed."""
    if find_spec(package) is None:
        raise CannotImport(f"{what} of the package {package}, which is not installed: pip install {_PACKAGES[package]}")
    try:
        importlib.import_module(package)
    except Exception as error:  # whatever the package raises on this TensorFlow
        line = " ".join(str(error).split())[:200]
        raise CannotImport(f"{what} of the package {package}, which cannot be imported: {line}") from None


def _found(module: str, name: str) -> Any:
    """A class or function of an installed module, which runs the module; None if there is none."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _named(node: Mapping[str, Any]) -> str:
    """A layer for an error: by its name where it has one."""
    inner = node.get("config")
    for place in (node, inner if isinstance(inner, dict) else {}):
        if isinstance(name := place.get("name"), str):
            return f"layer {_short(name)}"
    return "a layer"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
