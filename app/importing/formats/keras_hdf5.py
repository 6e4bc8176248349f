"""The reader of `.h5` and `.hdf5` files: whole models of Keras 1, 2 and 3.

Such files never had a safe mode, so the file and its configuration are checked before a library sees them
(keras_parts). A file without a configuration holds weights alone.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import h5py

from app.importing.formats.keras_model import source_of
from app.importing.formats.keras_parts.config_check import check_size, parse_config
from app.importing.formats.keras_parts.content import content_of, describe
from app.importing.formats.keras_parts.hdf5_check import Hdf5
from app.importing.formats.keras_parts.libraries import Library
from app.importing.formats.keras_parts.loading import load_checked
from app.importing.formats.keras_parts.older_configs import for_keras_3, with_input_shape
from app.importing.formats.refused import read_pickle, read_weights
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source

#: What may be the reason why Keras does not read its own file.
_OF_KERAS_3 = "; HDF5 files lose operations and arguments of Keras 3: save it as model.keras"


def read(path: Path, order: ImportOrder) -> Source:
    """The model in an HDF5 file. Raises CannotImport."""
    content = content_of(path)
    if content == "zip":
        raise CannotImport(f"{path.name} is a zip file, as archives of Keras 3 are: give it the ending .keras")
    if content == "pickle":
        read_pickle(path, order)
    if content != "hdf5":
        raise CannotImport(f"{path.name} is no HDF5 file: {describe(path)}")
    file = Hdf5(path, order.memory_bytes)
    if file.config is None:
        read_weights(path, order)
    config = parse_config(file.config)
    check_size(config)
    version = file.version or "1"  # Keras 1 did not write it
    with tempfile.TemporaryDirectory() as folder:

        def form(library: Library) -> tuple[Path, dict[str, Any]]:
            needed = with_input_shape(config, path) or config
            if not library.is_tf_keras and version[:1] in "12":
                needed = for_keras_3(needed)
            target = Path(folder) / f"{library.module.__name__}.h5"  # Keras tells formats by the ending
            _write(path, target, needed, changed=needed != config)
            return target, needed

        try:
            model, library = load_checked(form, file.weights_bytes, version, order)
        except CannotImport as error:
            raise CannotImport(f"{error}{_OF_KERAS_3 if version.startswith('3') else ''}") from None
    return source_of(model, library, f"Keras {version} HDF5 file")


def _write(path: Path, target: Path, config: dict[str, Any], *, changed: bool) -> None:
    if not changed:
        target.symlink_to(path.resolve())
        return
    shutil.copyfile(path, target)
    with h5py.File(target, "r+") as file:
        file.attrs["model_config"] = json.dumps(config).encode()
