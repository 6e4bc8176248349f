"""The states of one version of a model, named as in TensorFlow Serving, and its problems."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class VersionState(StrEnum):
    """TensorFlow Serving's ModelVersionStatus.State."""

    START = "START"
    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


def printable(text: str) -> str:
    """The text in valid UTF-8, as pages show it: names on disk may be any bytes."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """The state of a version. `error_message` is empty unless its load or unload failed.

    note: the unusual way in which it was loaded, and the reason; empty if it is usual.
    """

    version: int
    state: VersionState
    error_message: str = ""
    note: str = ""


class ProblemKind(StrEnum):
    """The kind of problem that keeps a version from being served."""

    FAILED = "failed"  # it could not be loaded
    MISSING = "missing"  # there is no version, or no graph in its folder
    CHANGING = "changing"  # its files are being written
    INCOMPLETE = "incomplete"  # a part is not there, or cut short
    UNREADABLE = "unreadable"  # an error of the storage
    SILENT = "silent"  # the storage does not answer
    NO_ROOM = "no_room"  # the storage stays slow, and a local copy does not fit
    NO_MEMORY = "no_memory"  # it takes more memory than is left, or took it: the system ended a server that loaded it
    WAITING = "waiting"  # a pipeline whose models are not there yet
    READING = "reading"  # it is being examined: no problem yet


class ModelProblem(NamedTuple):
    """The reason why a version of a model, or the model (version None), is not served. `text` names it."""

    model: str
    version: int | None
    kind: ProblemKind
    text: str
