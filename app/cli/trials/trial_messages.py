"""The messages between `ferry check` and the child process that loads models for it, a line of JSON each."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TrialVersion(NamedTuple):
    """A version to be loaded. `number` is None for a folder that is not numbered."""

    name: str
    number: int | None
    path: str

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name} version {self.number}"


class Kind(StrEnum):
    """The kind of a line that the child sends: a line is its kind and a text.

    STAGE: the next step, so that the parent can tell at which step the child ended.
    FOUND: a line that a server would log of a signature.
    NOTE: a remark that is no fault.
    ROWLESS: an output that does not follow the rows of the inputs, as JSON: signature, output, and what it is instead.
    FAULT: why the version would not be served, or fails.
    DONE: all of the version was told.
    """

    STAGE = "stage"
    FOUND = "found"
    NOTE = "note"
    ROWLESS = "rowless"
    FAULT = "fault"
    DONE = "done"
