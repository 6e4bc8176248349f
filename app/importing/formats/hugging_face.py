"""Snapshots of Hugging Face: a folder with a configuration and weights of TensorFlow or of keras-hub.

Code in a snapshot (`auto_map`) runs with `--trust` only. Weights of PyTorch are not read.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.importing.formats import read as read_format
from app.importing.formats.keras_model import resources_of
from app.importing.graphs.links import check_links
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Endpoint, Source, Tensors

#: The most bytes of a configuration.
_MOST_BYTES = 4 << 20

_WEIGHTS, _SAVED_MODEL = "tf_model.h5", Path("saved_model", "1")

#: Weights that are not read, and whose they are.
_OTHERS = {"model.safetensors": "PyTorch", "pytorch_model.bin": "PyTorch (a pickle)", "flax_model.msgpack": "Flax"}

_HOW = "pip install 'transformers<5' tf_keras"


def read(path: Path, order: ImportOrder) -> Source:
    """The model of a snapshot. Raises CannotImport."""
    snapshot = path.resolve()
    check_links(path, snapshot.parents[1] if snapshot.parent.name == "snapshots" else None)
    if (path / _SAVED_MODEL / "saved_model.pb").is_file():
        return read_format("saved_model", path / _SAVED_MODEL, order)
    if (path / "model.weights.h5").is_file():
        return _keras_hub(path)
    if not (path / _WEIGHTS).is_file():
        raise CannotImport(_without_weights(path))
    config = _configuration(path)
    if "auto_map" in config and not order.trust:
        raise CannotImport("config.json names code in the snapshot (auto_map); --trust runs it")
    return _transformers(path, config, order)


def _configuration(path: Path) -> Mapping[str, Any]:
    file = path / "config.json"
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise CannotImport(f"config.json is {file.stat().st_size:,} bytes; expected at most {_MOST_BYTES:,}")
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CannotImport(f"{path.name} has no config.json, which says what model its weights are of") from None
    except (ValueError, RecursionError):
        raise CannotImport("config.json is no JSON") from None
    if not isinstance(config, dict):
        raise CannotImport("config.json is no JSON object")
    return config


def _without_weights(path: Path) -> str:
    found = [f"{name} ({kind})" for name, kind in _OTHERS.items() if (path / name).is_file()]
    return (
        f"its weights are {', '.join(found) or 'missing'}; expected is {_WEIGHTS} or {_SAVED_MODEL}: with {_HOW}, "
        "TFAutoModel.from_pretrained(FOLDER, from_pt=True).save_pretrained(OTHER_FOLDER) makes it"
    )


# --- transformers ---


def _transformers(path: Path, config: Mapping[str, Any], order: ImportOrder) -> Source:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "USE_TF": "1", "USE_TORCH": "0"}
    names = [f"TF{each}" for each in config.get("architectures") or () if isinstance(each, str)]
    library = _library(
        "transformers", f"TensorFlow classes of transformers are needed, which are not installed: {_HOW}"
    )
    found: Any = next((getattr(library, name, None) for name in names if name.isidentifier()), None)
    if not hasattr(found, "from_pretrained"):
        raise CannotImport(
            f"transformers {library.__version__} has no class of TensorFlow for it ({', '.join(names)}); {_HOW}"
        )
    try:
        model: Any = found.from_pretrained(
            str(path), local_files_only=True, use_safetensors=False, trust_remote_code=order.trust
        )
    except Exception as error:  # whatever the library raises
        raise CannotImport(f"transformers {library.__version__} cannot read it: {_first_line(error)}") from None
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in model.input_signature.items()}

    def call(tensors: Tensors) -> Tensors:
        return _arrays_of(model(dict(tensors), training=False, return_dict=True))

    def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = call({name: tf.constant(array) for name, array in arrays.items()})
        return {name: np.asarray(each) for name, each in found.items()}

    return Source(
        f"Hugging Face snapshot, read by transformers {library.__version__}",
        [Endpoint(specs, call, run)],
        kept=list(resources_of(model)),
        labels=_labels(config),
    )


def _arrays_of(results: Mapping[str, Any]) -> dict[str, Any]:
    """The results that are single tensors; caches and layers' states are not for callers."""
    return {name: value for name, value in results.items() if tf.is_tensor(value)}


def _labels(config: Mapping[str, Any]) -> list[str]:
    """The names of classes by number, if the configuration has them all."""
    named = config.get("id2label")
    if not isinstance(named, dict):
        return []
    places = {str(number): str(label) for number, label in named.items()}
    wanted = [str(number) for number in range(len(places))]
    return [places[each] for each in wanted] if places.keys() == set(wanted) else []


# --- keras-hub ---


def _keras_hub(path: Path) -> Source:
    from app.importing.formats.keras_model import source_of  # noqa: PLC0415 - imports Keras
    from app.importing.formats.keras_parts.libraries import keras  # noqa: PLC0415 - imports Keras

    config = _configuration(path)
    module = str(config.get("module", ""))
    if module.split(".", maxsplit=1)[0] not in {"keras_hub", "keras_nlp"}:
        raise CannotImport(
            "model.weights.h5 holds weights without their model: config.json names no class of keras-hub"
        )
    library = keras()
    hub = _library("keras_hub", "it is a preset of keras-hub, which is not installed: pip install keras-hub")
    kind = hub.models.Task if (path / "task.json").is_file() else hub.models.Backbone
    try:
        model = kind.from_preset(str(path))
    except Exception as error:  # whatever the library raises
        raise CannotImport(f"keras-hub {hub.__version__} cannot read it: {_first_line(error)}") from None
    return source_of(model, library, "preset of keras-hub")


def _library(name: str, missing: str) -> Any:
    if find_spec(name) is None:
        raise CannotImport(missing)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CannotImport(f"{name} cannot be imported: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
