"""The commands on the pages: each tool knows the subcommand and every flag, as far as that shows without a cluster.

`.ci/kubernetes` runs it, where docker, helm and kubectl are on PATH.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.deploy.manifests import ROOT
from tests.support.missing import skip_loudly

TOOLS = {"docker": ["docker"], "ferry": [sys.executable, "-m", "app"], "helm": ["helm"], "kubectl": ["kubectl"]}


def commands() -> Iterator[str]:
    """Those in blocks of code, and each of a pipe; a line that ends with a backslash goes on."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(rf"^(?: {{4,}})?((?:{'|'.join(TOOLS)}) .*)$", text, re.MULTILINE):
            yield from (each for each in line.partition(" #")[0].strip().split(" | ") if each.split()[0] in TOOLS)


#: Without that of `docker compose`, which Debian does not have.
COMMANDS = [command for command in dict.fromkeys(commands()) if not command.startswith("docker compose")]


def named_by(usage: str, tool: str) -> Sequence[str]:
    """The subcommands in a tool's line of usage, such as `kubectl rollout status (TYPE NAME | TYPE/NAME) [flags]`."""
    found = re.search(rf"Usage:\s+(?:{tool}|python -m app)((?: +[a-z][a-z-]*)+)", usage)
    return found[1].split() if found else []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_subcommand_and_flags_that_its_tool_knows(command: str) -> None:
    tool, *words = shlex.split(command)
    if shutil.which(TOOLS[tool][0]) is None:
        skip_loudly(f"{tool} is not installed: its commands on the pages are NOT tried")
    place = next((at + 1 for at, word in enumerate(words) if word in {"run", "build"}), len(words))
    asked = [*words[:place], "--help", *words[place:]] if tool == "docker" else [*words, "--help"]
    run = subprocess.run([*TOOLS[tool], *asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    known = named_by(re.sub(r"\x1b\[[\d;]*m", "", run.stdout), tool)
    assert known, run.stdout
    assert [word for word in words if word in known][: len(known)] == list(known)


def test_there_are_commands_of_each_tool() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(TOOLS)


@pytest.mark.parametrize("wrong", ["kubectl rolout status deployment/ferry", "kubectl apply -k k8s/base --quiett"])
def test_a_wrong_command_is_found(wrong: str) -> None:
    with pytest.raises(AssertionError):
        test_a_command_has_a_subcommand_and_flags_that_its_tool_knows(wrong)
