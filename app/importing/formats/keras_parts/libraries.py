"""The libraries that read files of Keras: Keras 3, which comes with TensorFlow, and tf_keras, which is Keras 2.

A file of Keras 2 is read by tf_keras where it is installed: it is the code that wrote the file. Keras 3 reads most of
these files, too, and is the second try.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from app.importing.order import CannotImport

#: The command that installs tf_keras.
EXTRA = "pip install 'ferry-serving[import]'"

#: Characters of an error of Keras that are told.
_MOST_CHARACTERS = 300

#: What Keras writes before the reason, and how it colours that.
_AROUND = re.compile(r".*Exception encountered(: | when calling .*?\n\s*)", re.DOTALL)
_OBJECT = re.compile(r".*Example error message for object (<.*?>):\s*", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

#: What begins the long part of an error of Keras: configurations, advice on decorators.
_LONG_PARTS = re.compile(r"\n|\s*(Full object config|config=|Full config|Make sure custom classes|Please ensure)")


@dataclass(frozen=True, slots=True)
class Library:
    """keras or tf_keras; `name` is for people."""

    module: ModuleType
    name: str

    @property
    def is_tf_keras(self) -> bool:
        return self.module.__name__ == "tf_keras"

    def load(self, path: Path, custom: Mapping[str, Any], *, trust: bool) -> Any:
        """The model in a file, not compiled. Raises CannotImport.

        A file that was not checked may run code: checks come first.
        """
        arguments: dict[str, Any] = {"compile": False, "custom_objects": dict(custom), "safe_mode": not trust}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of training: optimizers, compiling
                return self.module.models.load_model(str(path), **arguments)
        except MemoryError:
            raise
        except Exception as error:  # whatever a layer raises for a wrong configuration or weights
            raise CannotImport(f"{self.name} cannot read it: {short_error(error)}") from None


def libraries_for(version: str) -> Sequence[Callable[[], Library]]:
    """The libraries to try, in order, for a file that this version of Keras wrote ('' where it does not say).

    A library is imported when it is called for, for that takes seconds.
    """
    if version.split(".", maxsplit=1)[0] not in {"", "0", "1", "2"}:
        return [keras]
    return [tf_keras, keras] if has_tf_keras() else [keras]


def keras() -> Library:
    """Keras 3, on TensorFlow. Raises CannotImport: another backend is in use in this process."""
    os.environ["KERAS_BACKEND"] = "tensorflow"  # also for a model that was trained with JAX or PyTorch
    module = _imported("keras")
    if module.backend.backend() != "tensorflow":
        raise CannotImport(f"Keras runs on {module.backend.backend()} in this process; TensorFlow is expected")
    return Library(module, f"Keras {module.__version__}")


def has_tf_keras() -> bool:
    """Whether tf_keras is installed."""
    return "tf_keras" in sys.modules or find_spec("tf_keras") is not None


def tf_keras() -> Library:
    """Keras 2. Raises CannotImport: it is not installed, or does not fit TensorFlow."""
    module = _imported("tf_keras")
    return Library(module, f"tf_keras {module.__version__}")


def _imported(name: str) -> ModuleType:
    os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # a file's filters load no libraries
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f" ({EXTRA})" if name == "tf_keras" else ""
        raise CannotImport(f"{name} cannot be imported{hint}: {short_error(error)}") from None


def short_error(error: BaseException) -> str:
    """The part of an error of Keras that a person reads: one line without colours, configurations and calls."""
    text = _OBJECT.sub(r"\1: ", _AROUND.sub("", _COLOURS.sub("", str(error)))).strip()
    line = " ".join(_LONG_PARTS.split(text, maxsplit=1)[0].split()).rstrip(" :") or type(error).__name__
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
