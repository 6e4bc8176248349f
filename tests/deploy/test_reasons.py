"""A check that is switched off for a line says why."""

from __future__ import annotations

import re
import tokenize

from tests.deploy.manifests import ROOT

SWITCHED_OFF = re.compile(r"(?:noqa: [A-Z0-9, ]*[0-9]|type: ignore\[[a-z, -]+\]|pragma: no cover)")
REASON = re.compile(r"\s*(?:-|# )\s*\S")


def test_every_check_that_is_switched_off_has_its_reason() -> None:
    bare = []
    for folder in ("app", "bench", "clients", "k8s", "tests"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if not any(map(_is_bare, file.read_text().splitlines())):  # tokens take a hundred times as long
                continue
            with file.open("rb") as text:
                comments = [each for each in tokenize.tokenize(text.readline) if each.type == tokenize.COMMENT]
            found = [each for each in comments if _is_bare(each.string)]
            bare += [f"{file.relative_to(ROOT)}:{each.start[0]}: {each.string}" for each in found]
    assert bare == []


def _is_bare(line: str) -> bool:
    off = list(SWITCHED_OFF.finditer(line))
    return bool(off) and not REASON.match(line, off[-1].end())
