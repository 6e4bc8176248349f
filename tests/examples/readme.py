"""What the READMEs of the examples say, and the server that they describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.deploy.pages.commands import commands, run
from tests.support.processes import ROOT, ServerProcess

EXAMPLES = ROOT / "docs/examples"

#: Bytes of a SavedModel, and of all of an example. Chosen: they lie in the repository.
MOST_BYTES, MOST_BYTES_IN_ALL = 150_000, 600_000


def facts_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def asked_as_shown(example: Path, server: ServerProcess) -> tuple[Any, Any]:
    """The answer that curl gets to the request of the README, and the answer that the README shows."""
    (command,) = commands(f"{example.relative_to(ROOT)}/README.md", "curl")
    output = run(command, ROOT, {8501: server.port})
    assert output.told == "200", output
    return json.loads(output.output), command.answer


def sizes(example: Path) -> list[int]:
    """Bytes of each model."""
    return [
        sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        for folder in sorted((example / "models").iterdir())
    ]
