"""Loads versions of models in a child process, one after another: what ends the child is told of the version.

A child serves many versions, since its start takes seconds; after one that ended it or took too long the next version
gets a new child. It ends with this process, whatever ends that, and leaves no file.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from app.child_process import ChildProcess
from app.cli.trials.trial_messages import Kind, TrialVersion

#: The program of a child: its module path is that of its parent.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from app.cli.trials.trial_process import main; main()"


@dataclass(slots=True)
class Trial:
    """The result of trying a version: the lines that a server would log, notes, and faults.

    rowless: the outputs that do not follow the rows of the inputs: (signature, output) -> what it is instead.
    """

    found: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rowless: dict[tuple[str, str], str] = field(default_factory=dict)


class ModelTrials:
    """The child process that loads versions, until `close`.

    Args:
        limit_s: seconds that a version may take, the start of its child included.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._child: ChildProcess | None = None

    def of(self, version: TrialVersion) -> Trial:
        """Loads a version and calls its signatures, blocking."""
        if self._child is None:
            self._child = ChildProcess(_PROGRAM)
        trial = Trial()
        try:
            for kind, text in self._child.lines(version, time.monotonic() + self._limit_s):
                if kind == Kind.DONE:
                    return trial
                if kind != Kind.STAGE:
                    _note(trial, Kind(kind), text)
        except TimeoutError:
            trial.faults.append(
                f"it took longer than {self._limit_s:g} s (--limit-s); its last step: {self._child.stage}"
            )
        else:
            trial.faults.append(f"the process that loads it {self._child.why_ended()}")
        self.close()
        return trial

    def close(self) -> None:
        """Ends the child."""
        child, self._child = self._child, None
        if child is not None:
            child.end()


def _note(trial: Trial, kind: Kind, text: str) -> None:
    if kind is Kind.ROWLESS:
        signature, output, misfit = json.loads(text)
        trial.rowless[signature, output] = misfit
    else:
        lines = {Kind.FOUND: trial.found, Kind.NOTE: trial.notes, Kind.FAULT: trial.faults}
        lines[kind].append(text)
