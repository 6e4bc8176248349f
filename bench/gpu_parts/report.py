"""What a part found: figures of its rounds, differences beside their bounds, and what was not measured, and why.

Each line is printed and written as soon as it is known, so a part that is ended keeps what it found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.support.figures import Spread

#: What no figure of a dry run may be taken for.
DRY_RUN = "DRY RUN ON THE CPU: no figure here says anything about a GPU"


class Report:
    """The findings of one part.

    Args:
        file: where they are written, as JSON.
        on: 'CPU' or 'GPU'; it stands beside each figure.
    """

    def __init__(self, part: str, file: Path, on: str = "?") -> None:
        self.on = on
        self._file = file
        self._found: dict[str, Any] = {
            "part": part, "predicted": "", "on": on, "device": {}, "figures": [], "bounds": [], "not_measured": [],
            "done": False,
        }  # fmt: skip

    def begin(self, predicted: str, on: str, device: dict[str, Any]) -> None:
        """What the part expects, written before it measures anything."""
        self.on = on
        self._found |= {"predicted": predicted, "on": on, "device": device}
        self._write()

    def figures(self, what: str, values: Sequence[float], unit: str, *, quiet: bool = False) -> str:
        """Of each round. Returns the median and the spread, which are printed unless `quiet`."""
        spread = Spread.of(values)
        found = {"what": what, "unit": unit, "median": spread.median, "least": spread.least, "most": spread.most}
        self._add("figures", {**found, "values": list(values)})
        short = f"{_number(spread.median)} ({_number(spread.least)}-{_number(spread.most)}) {unit}"
        if not quiet:
            self.line(what, f"{short}, {counted(len(values), 'round')}")
        return short

    def ratio(self, what: str, mine: Sequence[float], theirs: Sequence[float], *, quiet: bool = False) -> str:
        """By round, so it holds although the machine's speed drifts. Returns and prints as `figures`."""
        return self.figures(what, [one / other for one, other in zip(mine, theirs, strict=True)], "x", quiet=quiet)

    def line(self, what: str, text: str) -> None:
        """Printed only: it is said of which device."""
        print(f"  [{self.on}] {what + ':':<62} {text}", flush=True)

    def bound(self, what: str, value: float, most: float) -> None:
        """A difference beside the bound that was stated for it; NaN is not within it."""
        within = bool(value <= most)
        self._add("bounds", {"what": what, "value": value, "bound": most, "within": within})
        verdict = "within" if within else "OUTSIDE OF"
        self.line(what, f"{value:.1e}, {verdict} the bound {most:.1e}")

    def fact(self, what: str, text: str) -> None:
        self._found.setdefault("facts", {})[what] = text
        self._write()
        self.line(what, text)

    def not_measured(self, what: str, why: str) -> None:
        self._add("not_measured", {"what": what, "why": why})
        print(f"  NOT MEASURED: {what}, because {why}", flush=True)

    def done(self) -> None:
        self._found["done"] = True
        self._write()

    def _add(self, kind: str, entry: dict[str, Any]) -> None:
        self._found[kind].append(entry)
        self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._found, indent=1))
        new.replace(self._file)  # at once: the part may be ended at any time


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
