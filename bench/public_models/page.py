"""docs/public-models.md: the table of what came of each model. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bench.public_models import obtain
from bench.public_models.table import MODELS
from bench.public_models.trial import Result

_HEAD = """# Public models

Models that others made, from packages of others (PyPI): each is served by `ferry serve PATH` at the first try, without
another step, and asked by 32 callers at once. The right answers come from the source itself, called row by row by its
own library; Ferry has no part in them. Written by `python -m bench.public_models --write`; what is obtained from where
stands in `bench/public_models/table.py`. Weights are the package's own, or random ones where it ships none.

"""

_LEGEND = """
- **Difference**: the largest one to the reference, as a share of the output's largest value; alone, and with 32 callers
  at once. Up to 1e-4 counts as right (float32; sums in another order); strings and whole numbers must be equal, and
  quantized outputs of 8 bits may be off by one.
- **Batched**: rows in a call, on average, while 32 callers ask; or why each request runs alone.
- **Beside direct**: answers a second for 32 callers, clients on the same two cores, over rows a second of direct calls
  of the source in batches of 16 (of one row, where it takes no more: marked *).
- **Ready**: seconds from the command until the model answers, the import and its proof included.
"""


def packages(results: Sequence[Result]) -> set[str]:
    return {MODELS[result.name].package for result in results if result.outcome != "missing"}


def counts(results: Sequence[Result]) -> str:
    """One sentence for all."""
    by = Counter(result.outcome for result in results)
    gone = f"; {by['missing']} could not be had" if by["missing"] else ""
    return (
        f"{sum(by.values()) - by['missing']} models of {len(packages(results))} packages: {by['right']} answer rightly "
        f"without a step, {by['said']} say in one sentence what to do, {by['wrong']} are wrong{gone}."
    )


def table(results: Sequence[Result], versions: Mapping[str, str]) -> str:
    """Markdown."""
    lines = [
        "| model | package | kind | outcome | difference alone, together | batched | beside direct | ready, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_cells(result, versions))} |" for result in results]
    return "\n".join(lines)


def _cells(result: Result, versions: Mapping[str, str]) -> Sequence[str]:
    model = MODELS[result.name]
    start = (f"`{model.name}`", f"{model.package} {versions.get(model.package, '')}".strip(), model.kind)
    if result.outcome != "right":
        return (*start, f"{result.outcome}: {_escaped(result.note)}", "", "", "", f"{result.ready_s:.0f}")
    batched = f"{result.rows_per_call:.0f}" if result.batched else f"alone: {_escaped(result.note)}"
    ratio = f"{result.rate / result.direct_rate:.2f}{'' if result.direct_rows > 1 else '*'}"
    differences = f"{result.alone:.0e}, {result.together:.0e}{' (rows alike)' if result.alike else ''}"
    return (*start, "right", differences, batched, ratio, f"{result.ready_s:.0f}")


def _escaped(text: str) -> str:
    """For a cell; without the cache's folder."""
    return text.replace(f"{obtain.SOURCES}/", "").replace("|", "\\|")


def page(results: Sequence[Result], versions: Mapping[str, str]) -> str:
    return f"{_HEAD}**{counts(results)}**\n\n{table(results, versions)}\n{_LEGEND}"
