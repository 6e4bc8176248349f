"""Symbolic links in the folder of a source: none may lead out, to files that its maker does not have."""

from __future__ import annotations

import os
from pathlib import Path

from app.importing.order import CannotImport


def check_links(folder: Path, inside: Path | None = None) -> None:
    """Raises CannotImport: a link below a folder leads out of it.

    Args:
        inside: a folder above, out of which no link may lead, instead of the folder itself.
    """
    root = (inside or folder).resolve()
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise CannotImport(f"{path.relative_to(folder)} is a link out of {root.name}, to {os.readlink(path)}")
