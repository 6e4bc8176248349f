"""Which classes and functions a configuration may name: those of the library that reads it, and no others.

Names are looked up in modules that the library itself has loaded; nothing is imported because a file says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

from app.importing.formats.keras_parts.libraries import Library

#: Classes of Keras that hold or load code, or read files, by what they do.
DANGEROUS = {
    "Lambda": "holds Python code",
    "__lambda__": "holds Python code",
    "TorchModuleWrapper": "holds a pickle of PyTorch",
    "JaxLayer": "holds Python code",
    "FlaxLayer": "holds Python code",
    "TFSMLayer": "loads a SavedModel from a path",
}

#: Classes that a configuration may hold, by their place in a library. Some are in one of the libraries alone.
_BASES = (
    "layers.Layer",
    "Model",
    "Operation",
    "initializers.Initializer",
    "regularizers.Regularizer",
    "constraints.Constraint",
    "optimizers.Optimizer",
    "optimizers.schedules.LearningRateSchedule",
    "losses.Loss",
    "metrics.Metric",
    "DTypePolicy",
    "dtype_policies.DTypePolicy",
    "dtype_policies.DTypePolicyMap",
    "mixed_precision.Policy",
    "quantizers.Quantizer",
    "random.SeedGenerator",
    "utils.FeatureSpace",
)

#: Such classes that no public module shows.
_HIDDEN_BASES = (
    ("src.optimizers.legacy.optimizer_v2", "OptimizerV2"),
    ("src.quantizers.quantization_config", "QuantizationConfig"),
)

#: Modules below the library whose functions compute: what an activation, a loss or an operation may be.
_FUNCTIONS = frozenset({"activations", "constraints", "initializers", "losses", "metrics", "nn", "ops", "regularizers"})

#: Where classes are looked up that a file names without a module (the older form).
_PLACES = ("layers", "models", "", "initializers", "regularizers", "constraints", "optimizers", "losses", "metrics")
_MORE_PLACES = ("layers.experimental.preprocessing", "mixed_precision", "dtype_policies", "optimizers.schedules")

#: Classes of older files that no public module shows, by their modules in the libraries.
_HIDDEN = {
    "Functional": ("src.models.functional", "src.engine.functional"),
    "TFOpLambda": ("src.layers.core.tf_op_layer",),
    "SlicingOpLambda": ("src.layers.core.tf_op_layer",),
    "ClassMethod": ("src.layers.core.tf_op_layer",),
    "InstanceMethod": ("src.layers.core.tf_op_layer",),
    "InstanceProperty": ("src.layers.core.tf_op_layer",),
    "TensorFlowOpLayer": ("src.engine.base_layer",),
    "CuDNNLSTM": ("src.layers.rnn.cudnn_lstm",),
    "CuDNNGRU": ("src.layers.rnn.cudnn_gru",),
}


class KnownClasses:
    """The classes and functions that a library has for models."""

    def __init__(self, library: Library) -> None:
        self._root = library.module

    def has_class(self, module: str | None, name: str) -> bool:
        """Whether a class of the library is meant; `module` is None in the older form of configurations."""
        if module is None:
            return any(self._is_fit(each) for each in self._without_module(name))
        return self._is_fit(self._symbol(module, name))

    def has_function(self, module: str | None, name: str) -> bool:
        """Whether a function of the library that computes is meant."""
        if module is None or module == "builtins":
            return any(callable(self._symbol(f"keras.{place}", name)) for place in _FUNCTIONS)
        parts = [part for part in module.split(".")[1:] if part != "src"]
        return bool(parts) and parts[0] in _FUNCTIONS and callable(self._symbol(module, name))

    def _without_module(self, name: str) -> Iterator[Any]:
        for place in (*_PLACES, *_MORE_PLACES):
            yield self._symbol(f"keras.{place}".rstrip("."), name)
        for place in _HIDDEN.get(name, ()):
            yield self._symbol(f"keras.{place}", name)

    def _symbol(self, module: str, name: str) -> Any:
        """What the library calls so: by its public modules, else by a module that it has loaded; None if nothing is."""
        root, *parts = module.split(".")
        if root not in {"keras", "tf_keras"} or "." in name or name.startswith("_"):
            return None
        public: Any = self._root
        for part in parts:
            public = vars(public).get(part) if isinstance(public, ModuleType) else None
        if isinstance(public, ModuleType) and (found := vars(public).get(name)) is not None:
            return found
        own = self._root.__name__
        for place in (".".join([own, *parts]), ".".join([own, "src", *parts])):  # Keras 2.12 had no `src`
            if (loaded := sys.modules.get(place)) is not None and (found := vars(loaded).get(name)) is not None:
                return found
        return None

    def _is_fit(self, found: Any) -> bool:
        return isinstance(found, type) and issubclass(found, self._bases)

    @cached_property
    def _bases(self) -> tuple[type, ...]:
        paths = [path.split(".") for path in _BASES]
        public = [_attribute(self._root, path) for path in paths]
        hidden = [
            getattr(sys.modules.get(f"{self._root.__name__}.{place}"), name, None) for place, name in _HIDDEN_BASES
        ]
        return tuple(each for each in (*public, *hidden) if isinstance(each, type))


def _attribute(found: Any, path: list[str]) -> Any:
    for part in path:
        found = getattr(found, part, None)
    return found
