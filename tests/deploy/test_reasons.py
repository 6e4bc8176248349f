"""A check that is switched off for a line says why."""

from __future__ import annotations

import re
import tokenize

from tests.deploy.manifests import ROOT

SWITCHED_OFF = re.compile(r"(?:noqa: [A-Z0-9, ]*[0-9]|type: ignore\[[a-z, -]+\]|pragma: no cover)")
REASON = re.compile(r"\s*(?:-|# )\s*\S")


def test_every_check_that_is_switched_off_has_its_reason() -> None:
    bare = []
    for folder in ("app", "bench", "clients", "k8s", "tests/deploy"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            with file.open("rb") as text:
                comments = [each for each in tokenize.tokenize(text.readline) if each.type == tokenize.COMMENT]
            for each in comments:
                off = list(SWITCHED_OFF.finditer(each.string))
                if off and not REASON.match(each.string, off[-1].end()):
                    bare.append(f"{file.relative_to(ROOT)}:{each.start[0]}: {each.string}")
    assert bare == []
