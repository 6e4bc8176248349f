"""The reader of `.keras` files: the archives of Keras 3, and of Keras 2.12 and later.

The archive and its configuration are checked before a library sees them (keras_parts). Before TensorFlow 2.12 the
ending `.keras` was HDF5, which is read as that.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from app.importing.formats import keras_hdf5
from app.importing.formats.keras_model import source_of
from app.importing.formats.keras_parts.archive_check import Archive
from app.importing.formats.keras_parts.config_check import check_size
from app.importing.formats.keras_parts.content import content_of, describe
from app.importing.formats.keras_parts.loading import load_checked
from app.importing.formats.refused import read_pickle
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source


def read(path: Path, order: ImportOrder) -> Source:
    """The model in a `.keras` file. Raises CannotImport."""
    content = content_of(path)
    if content == "hdf5":
        return keras_hdf5.read(path, order)
    if content == "pickle":
        read_pickle(path, order)
    if content != "zip":
        raise CannotImport(f"{path.name} is no archive of Keras (a zip file): {describe(path)}")
    archive = Archive(path, order.memory_bytes)
    check_size(archive.config)
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "model.keras"  # Keras tells formats by the ending
        link.symlink_to(path.resolve())
        model, library = load_checked(lambda _: (link, archive.config), archive.weights_bytes, archive.version, order)
    written_by = f"Keras {archive.version}" if archive.version else "Keras"
    return source_of(model, library, f"{written_by} archive")
