"""The clients' own environment, .venv-clients, and what runs in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.official_clients.scripts.exchange import from_json, to_json
from tests.support.missing import skip_loudly
from tests.support.processes import ROOT
from tests.support.waiting import HANG_S

ENVIRONMENT = ROOT / ".venv-clients"
SCRIPTS = Path(__file__).parent / "scripts"
#: Written when the installation is complete.
CLIENTS = ENVIRONMENT / ".clients-installed"


def require(path: Path) -> None:
    if not path.exists():
        skip_loudly(f"{path.relative_to(ROOT)} is missing: other servers' clients are NOT tried. Make it: make clients")


class Answers(Mapping[str, Any]):
    """The answers of a script's cases. A case that raised an error fails the test that reads it."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def __getitem__(self, name: str) -> Any:
        answer = self._answers[name]
        assert "raised" not in answer, answer["raised"]
        return from_json(answer["answer"])

    def __contains__(self, name: object) -> bool:
        return name in self._answers

    def __iter__(self) -> Any:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


def ask(script: str, question: Mapping[str, Any], folder: Path) -> Answers:
    """Runs all cases of the script in .venv-clients; its files go into `folder`."""
    asked, answered = folder / f"{script}.question.json", folder / f"{script}.answers.json"
    asked.write_text(json.dumps(to_json(question)))
    python = ENVIRONMENT / "bin/python"
    run([str(python), str(SCRIPTS / f"{script}.py"), str(asked), str(answered)], {"TF_CPP_MIN_LOG_LEVEL": "3"})
    return Answers(json.loads(answered.read_text()))


def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The command's output. Fails if the command fails or takes longer than HANG_S."""
    finished = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout
