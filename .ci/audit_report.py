"""Reads what pip-audit wrote, a file for each lock and advisory source, and says what it means.

pip-audit ends with success, and "No known vulnerabilities found", where it could ask nobody: a mirror without
advisories answers "not found" for each package. So what counts is how many packages were looked up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Verdict(NamedTuple):
    """What was found: packages that were looked up, and a line for each vulnerability."""

    audited: frozenset[str]
    vulnerable: frozenset[str]


def read(reports: Iterable[Path]) -> Verdict:
    """A report that is missing or empty says nothing."""
    audited, vulnerable = set(), set()
    for report in reports:
        try:
            packages = json.loads(report.read_text())["dependencies"]
        except (OSError, ValueError, KeyError):
            continue
        for each in packages:
            if "skip_reason" in each:
                continue
            audited.add(f"{each['name']} {each['version']}")
            for found in each["vulns"]:
                fixed = ", ".join(found["fix_versions"]) or "no version"
                vulnerable.add(f"{each['name']} {each['version']}: {found['id']}, fixed in {fixed}")
    return Verdict(frozenset(audited), frozenset(vulnerable))


def main(arguments: list[str]) -> None:
    verdict = read(map(Path, arguments))
    if not verdict.audited:
        bar = 100 * "!"
        print(f"{bar}\nNO ADVISORY SOURCE COULD BE REACHED: the locks were NOT audited for vulnerabilities.\n{bar}")
        return
    print(f"{len(verdict.audited)} locked packages were audited; {len(verdict.vulnerable)} vulnerabilities")
    for line in sorted(verdict.vulnerable):
        print(f"VULNERABLE: {line}")


if __name__ == "__main__":
    main(sys.argv[1:])
