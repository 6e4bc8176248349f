"""The commands in blocks of code on the pages for readers, and what runs them as a reader would.

A block is fenced as `sh`, or indented by four spaces. The answer that a page shows to a command is the next block, if
that is fenced as `json`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tests.support.processes import ROOT
from tests.support.waiting import HANG_S

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: The programs whose commands are found here. tests/deploy/check_page_commands.py has those of clusters and images.
PROGRAMS = ("curl", "openssl", "python", "ferry", "ferry-model-server")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^ {4}.*\n)+)", re.MULTILINE | re.DOTALL)
_BEGIN = re.compile(rf"\s*(?:\w+=\S+ )*({'|'.join(PROGRAMS)}) ")

#: What a reader's shell has: the programs of this checkout. curl finds the servers under test at the ports of the
#: pages, and writes the status to standard error.
_SHELL = r"""
curl() { command curl --silent --show-error $PORTS --write-out '%{stderr}%{http_code}' "$@"; }
ferry() { "$PYTHON" -m app "$@"; }
python() { "$PYTHON" "$@"; }
"""


class Command(NamedTuple):
    """A command with all of its lines. `answer`: the JSON that the page shows to it; None if it shows none."""

    page: str
    program: str
    text: str
    answer: Any = None

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.text.split())[:60]}"


class Done(NamedTuple):
    """What a command wrote. `told`: to standard error; of curl the status."""

    output: str
    told: str


def commands(page: str, *programs: str) -> list[Command]:
    """Those of the page, a path from the root, in its order. `programs`: of these alone."""
    found: list[Command] = []
    begun = 0
    for language, fenced, indented in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "json" and len(found) > begun:
            found[-1] = found[-1]._replace(answer=json.loads(fenced))
        begun = len(found)
        if language == "sh" or indented:
            found += [Command(page, program, text) for program, text in _commands_of(fenced or indented)]
    return [each for each in found if each.program in (programs or PROGRAMS)]


def all_commands(*programs: str) -> list[Command]:
    return [each for page in PAGES for each in commands(str(page.relative_to(ROOT)), *programs)]


def _commands_of(block: str) -> Iterator[tuple[str, str]]:
    lines = iter(block.splitlines())
    for line in lines:
        if begin := _BEGIN.match(line):
            text = line.strip()
            while not _is_whole(text):
                text += "\n" + next(lines)
            yield begin[1], text


def _is_whole(text: str) -> bool:
    with suppress(ValueError):  # a quote is open
        shlex.split(text, comments=True)
        return not text.endswith("\\")
    return False


def words(command: Command, given: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Those behind the program. `given`: what stands for what only a reader has."""
    return [given.get(each, each) for each in shlex.split(command.text, comments=True)[1:]]


def clone(folder: Path) -> Path:
    """The folder, with what a clone of the repository has in its root."""
    for each in ("docs", "examples", "models"):
        (folder / each).symlink_to(ROOT / each)
    return folder


def run(command: Command, folder: Path, ports: Mapping[int, int] = MappingProxyType({}), **variables: str) -> Done:
    """Runs it in the folder.

    Args:
        ports: of the servers under test, by those that the pages name.
        variables: what the shell has.
    """
    ports_of_curl = [f"--connect-to :{shown}:127.0.0.1:{port}" for shown, port in ports.items()]
    given = {"PORTS": " ".join(ports_of_curl), "PYTHON": sys.executable, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", _SHELL + command.text],
        cwd=folder,
        env=os.environ | given | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, f"{command.text}\n{done.stdout}{done.stderr}"
    return Done(done.stdout, done.stderr)


def asked(command: Command, folder: Path, ports: Mapping[int, int], within: float = 1e-5, **variables: str) -> str:
    """What curl gets: the status that the page tells of, and if it shows the answer, that.

    `within`: how far numbers may be apart, since models answer a little different on another machine.
    """
    output, status = run(command, folder, ports, **variables)
    is_error = isinstance(command.answer, dict) and "error" in command.answer
    assert status == ("400" if is_error else "200"), output
    if command.answer is not None:
        numbers, shape = _apart(json.loads(output))
        expected, expected_shape = _apart(command.answer)
        assert shape == expected_shape
        np.testing.assert_allclose(numbers, expected, rtol=1e-3, atol=within)
    return output


def _apart(document: Any) -> tuple[list[float], str]:
    """All floats of a document, and what is left of it without them."""
    numbers: list[float] = []

    def taken(text: str) -> None:
        numbers.append(float(text))

    rest = json.dumps(json.loads(json.dumps(document), parse_float=taken))
    return numbers, rest
