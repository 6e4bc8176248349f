"""Files that no reader reads: pickles, which run code when they are read, and weights whose model is only code."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from app.importing.order import CannotImport, ImportOrder

#: Where people with the code find the lines to run.
_PAGE = "docs/export-from-memory.md"


def read_pickle(path: Path, _: ImportOrder) -> NoReturn:
    """Raises CannotImport: a pickle is never read."""
    raise pickle_refused(path)


def pickle_refused(path: Path) -> CannotImport:
    return CannotImport(
        f"{path.name} is a pickle, which runs code when it is read, so it is refused; "
        f"where it was made, read it and save the model itself: model.save('model.keras') for Keras, or {_PAGE}"
    )


def read_weights(path: Path, _: ImportOrder) -> NoReturn:
    """Raises CannotImport: the code that makes the model is missing."""
    raise CannotImport(
        f"{path.name} holds weights without their model, whose code is missing; where the code is, "
        f"make the model, then model.load_weights('{path.name}') and model.save('model.keras') ({_PAGE})"
    )
