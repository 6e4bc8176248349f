"""What the READMEs of the examples say, and the server that they describe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.support.processes import ROOT, ServerProcess

EXAMPLES = ROOT / "docs/examples"

#: Bytes of a SavedModel, and of all of an example. Chosen: they lie in the repository.
MOST_BYTES, MOST_BYTES_IN_ALL = 150_000, 600_000

_REQUEST = re.compile(r"^curl localhost:8501(\S+) -d (.+)\n```\n\n```json\n(.+)\n```$", re.MULTILINE)


def facts_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def asked_as_shown(example: Path, server: ServerProcess) -> tuple[Any, Any]:
    """The answer to the request of the README, sent as curl does, and the answer that the README shows."""
    ((path, data, answer),) = _REQUEST.findall((example / "README.md").read_text(encoding="utf-8"))
    data = data.strip("'")
    content = (ROOT / data[1:]).read_bytes() if data.startswith("@") else data
    reply = server.client.post(path, content=content, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert reply.status_code == 200, reply.text
    return reply.json(), json.loads(answer)


def sizes(example: Path) -> list[int]:
    """Bytes of each model."""
    return [
        sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        for folder in sorted((example / "models").iterdir())
    ]
