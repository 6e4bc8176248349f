"""Loading a checked file: with the library that wrote it, else with the other one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.importing.formats.keras_parts.config_check import ConfigCheck, Limits
from app.importing.formats.keras_parts.known_classes import KnownClasses
from app.importing.formats.keras_parts.libraries import EXTRA, Library, has_tf_keras, libraries_for
from app.importing.order import CannotImport, ImportOrder

#: The file and its configuration for a library: an older form may have to be changed.
Form = Callable[[Library], tuple[Path, Mapping[str, Any]]]


def load_checked(form: Form, weights_bytes: int, version: str, order: ImportOrder) -> tuple[Any, Library]:
    """The model, and the library that read it. Raises CannotImport: the first library's reason."""
    reason = ""
    for make in libraries_for(version):
        try:
            library = make()
            path, config = form(library)
            needed = {key: value for key, value in config.items() if key != "compile_config"}  # not loaded
            check = ConfigCheck(KnownClasses(library), Limits(weights_bytes, order.trust))
            check.run(needed)
            return library.load(path, check.custom, trust=order.trust), library
        except CannotImport as error:
            reason = reason or str(error)
    if version.startswith(("1", "2")) and not has_tf_keras():
        reason += f"; a file of Keras 2 is best read by tf_keras: {EXTRA}"
    raise CannotImport(reason)
