"""The rules for the value of one setting; rules between several settings are in topics/.

A rule's error says what is expected; sources.py puts the setting and the value before it.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from app.config.timed_look import found_within
from app.config.values import Folders, Sizes

#: Seconds that the storage of the models folder may take to say what it is. Chosen.
_LOOK_S = 2.0


#: The beginning of a URL, as a Path writes it: 's3://bucket' is 's3:/bucket'. A letter alone is a drive elsewhere.
_URL = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/")


def _models_folder(models: Path) -> Path:
    """Checks that the models folder can be read, or may come later into a folder that is there."""
    if why := found_within(_LOOK_S, lambda: _why_no_folder(models)):
        raise ValueError(why)
    return models


def _why_no_folder(models: Path) -> str:
    """The text of what the setting should be; empty if it is a folder that can be read, or may become one."""
    try:
        there, folder = models.exists(), models.is_dir()
    except PermissionError:
        there, folder = True, True
    if folder and not os.access(models, os.R_OK | os.X_OK, effective_ids=True):
        return f"a folder that user {os.geteuid()} may read: rights r and x are missing there, or x in one around it"
    if there:
        return "" if folder else f"a folder, not the file {models}"
    if url := _URL.match(str(models)):
        return f"a folder of this machine: mount what is at {url[1]}://, or copy it into a folder first"
    parent = models.absolute().parent
    return "" if parent.is_dir() else f"a folder: make it, or mount it; there is no folder {parent} to hold it, either"


def _access_file(path: str) -> str:
    """Checks the access file: a server that could not read it would deny every caller."""
    from app.access.access_file import AccessFileError, read_access_file  # noqa: PLC0415 - `ferry --help` needs no YAML

    if not path:
        return path
    try:
        file = read_access_file(Path(path))
    except AccessFileError as error:
        raise ValueError(f"an access file that can be used: {error}") from None
    if file.issuers and not has_jwt():
        raise ValueError('one without issuers, or PyJWT installed: pip install "ferry-serving[jwt]"')
    return path


def _writable(path: str) -> str:
    if path and not os.access(path if os.path.exists(path) else Path(path).absolute().parent, os.W_OK):
        raise ValueError("a file that can be written, in a folder that exists")
    return path


def _absolute(roots: list[Path]) -> list[Path]:
    if not all(root.is_absolute() for root in roots):
        raise ValueError("absolute folders such as /models,/data/models")
    return roots


def _ascending(sizes: list[int]) -> list[int]:
    if sorted(set(sizes)) != sizes:
        raise ValueError("ascending numbers such as 64,256")
    return sizes


def _runtime(name: str) -> str:
    from app.runtime import runtime_names  # noqa: PLC0415 - `ferry --help` needs no numpy

    if name not in runtime_names():
        raise ValueError(f"one of: {', '.join(runtime_names())}")
    return name


#: A folder that can be read; one that is not there may come later, into a folder that is.
ModelsFolder = Annotated[Path, AfterValidator(_models_folder)]

#: A file that may be made; empty for none.
WritableFile = Annotated[str, AfterValidator(_writable)]

#: An access file that can be used now; empty for none.
AccessFilePath = Annotated[str, AfterValidator(_access_file)]

AbsoluteFolders = Annotated[Folders, AfterValidator(_absolute)]
AscendingSizes = Annotated[Sizes, AfterValidator(_ascending)]

#: A name that is registered in app/runtime.py.
RuntimeName = Annotated[str, AfterValidator(_runtime)]


def has_jwt() -> bool:
    """True if the packages of the extra `jwt` are installed."""
    return all(map(find_spec, ("jwt", "cryptography")))


def has_opentelemetry() -> bool:
    """True if the packages of the extra `tracing` are installed."""
    try:
        return all(map(find_spec, ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")))
    except ModuleNotFoundError:  # not even the packages around them
        return False
