"""Gathers the public models, serves each, and prints what came of it: python -m bench.public_models

    --only NAME ...   these models
    --small           the ten small ones that CI tries
    --gather          obtains the sources and their references, and ends
    --write           writes docs/public-models.md, of each model its newest result

All that is obtained stays in the benchmark's cache (bench/support/cache.py). The exit code is 1 if a model is wrong or
could not be had.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bench.public_models import obtain, page
from bench.public_models.reference_run import run_references
from bench.public_models.table import MODELS, Model
from bench.public_models.trial import Result, try_model
from bench.support.cache import ROOT

_PAGE = ROOT / "docs" / "public-models.md"


def gather(models: Sequence[Model], python: Callable[[], Path]) -> dict[str, Result]:
    """Sources and references in the cache; by name the models that lack one, and why. Said loudly."""
    missing = {}
    for model in models:
        try:
            obtain.obtain(model, python)
        except obtain.NotObtained as error:
            missing[model.name] = Result(model.name, "missing", str(error))
    there = [model.name for model in models if model.name not in missing and not model.says]
    for name, why in run_references(python(), obtain.SOURCES, there).items():
        missing[name] = Result(name, "missing", f"its own library gives no reference: {why}")
    for result in missing.values():
        print(f"!!! NOT TRIED: {result.name} of {MODELS[result.name].package}: {result.note}", flush=True)
    return missing


def try_all(models: Sequence[Model], missing: dict[str, Result], *, small: bool) -> list[Result]:
    """One after another, with rates; the small ones two at a time, without."""

    def attempt(model: Model) -> Result:
        return missing.get(model.name) or try_model(model, obtain.SOURCES, measured=not small)

    results = []
    with ThreadPoolExecutor(2 if small else 1) as lanes:
        for result in lanes.map(attempt, models):
            results.append(result)
            print(f"{result.name}: {result.outcome} {result.note}", flush=True)
            if not small:
                (obtain.SOURCES / f"{result.name}.result").write_text(json.dumps(asdict(result)))
    return results


def _newest_results() -> Iterator[Result]:
    for name in MODELS:
        file = obtain.SOURCES / f"{name}.result"
        if file.is_file():
            yield Result(**json.loads(file.read_text()))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.public_models", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="NAME")
    for flag in ("--small", "--gather", "--write"):
        parser.add_argument(flag, action="store_true")
    asked = parser.parse_args(arguments)
    models = [
        model
        for model in MODELS.values()
        if (not asked.only or model.name in asked.only) and (model.small or not asked.small)
    ]
    missing = gather(models, (lambda: Path(sys.executable)) if asked.small else obtain.makers_python)
    if asked.gather:
        return bool(missing)
    results = try_all(models, missing, small=asked.small)
    versions = {each: obtain.version(each) for each in page.packages(results)}
    print(f"\n{page.counts(results)}\n\n{page.table(results, versions)}")
    if asked.write:
        newest = list(_newest_results())
        _PAGE.write_text(page.page(newest, {each: obtain.version(each) for each in page.packages(newest)}))
    return any(result.outcome in {"wrong", "missing"} for result in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
