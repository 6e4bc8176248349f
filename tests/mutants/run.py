"""The mutation tester: `python -m tests.mutants.run`, or `make mutants`.

The tests are collected once. A first run, in a child process, notes which functions each test enters. Then each mutant
gets a child process of its own, forked from the collected tests: it plants the mutant (planting.py) and runs the tests
that enter its function, quickest first, until one fails.

A mutant that outlives five times the seconds of its tests, or its memory, counts as found. No mutants are made of texts
and logs (operators.py), nor of class attributes. What no test can see stands in accepted.txt, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.operators import Mutant, mutants
from tests.mutants.planting import NotPossible, plant, users_of_constant

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = ROOT / "tests/mutants/accepted.txt"

#: Files, and the tests that have to find what is wrong with them. The second needs TensorFlow.
GROUPS = (
    (
        ("app/batching/**/*.py", "app/model.py", "app/placement.py", "app/core/validation.py", "app/core/agreement.py"),
        ("tests/batching", "tests/model", "tests/core", "tests/laws"),
    ),
    (("app/runtimes/tensorflow/variants/trial.py",), ("tests/runtimes/tensorflow/variants",)),
    (
        (
            "app/frontends/channel/*.py", "app/frontends/engine/*.py", "app/frontends/frontend/*.py",
            "app/repository/**/*.py", "app/server/engine.py", "app/server/server.py", "app/server/grpc_servers.py",
            "app/server/http_server.py", "app/instrumentation/*.py", "app/pipelines/**/*.py",
        ),
        (
            "tests/laws", "tests/frontends/channel", "tests/frontends/engine", "tests/frontends/frontend",
            "tests/frontends/test_connections.py", "tests/repository", "tests/pipelines/flows", "tests/pipelines/fold",
            "tests/pipelines/test_[acdefs]*.py", "tests/instrumentation/test_*.py",
        ),
    ),
    (
        (
            "app/transports/http/asgi_request.py", "app/transports/http/connections/*.py",
            "app/transports/http/direct/*.py", "app/transports/http1/*.py", "app/transports/http2/*.py",
            "app/transports/rest_http2/*.py",
        ),
        (
            "tests/transports/http", "tests/transports/http1", "tests/transports/http2", "tests/transports/rest_http2",
            "tests/laws/transports/test_everything*.py", "tests/laws/transports/test_http2*.py",
        ),
    ),
)  # fmt: skip

#: Seconds that a mutant may take beside five times what its tests take. Chosen.
_PATIENCE_S = 10.0

#: Memory that a mutant may take more than the tests before it. Chosen.
_MEMORY_BYTES = 4 << 30

KILLED, SURVIVED, TIMED_OUT, NOT_REACHED, NOT_POSSIBLE = "killed", "survived", "timed out", "not reached", "impossible"


@dataclass(slots=True)
class Options:
    files: Sequence[str] = ()
    sample: int = 0
    seed: int = 1
    jobs: int = 2


@dataclass(slots=True)
class Reach:
    """What a test run without mutants shows.

    Attributes:
        seconds: of each test, by its number.
        tests: by `path function`, the numbers of the tests that enter it.
        failed: the names of tests that fail without any mutant.
    """

    seconds: dict[int, float] = field(default_factory=dict)
    tests: dict[str, set[int]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def of(self, mutant: Mutant) -> list[int]:
        """The tests that may notice a mutant, quickest first."""
        places = [f"{mutant.path} {mutant.function}"] if mutant.function else users_of_constant(mutant)
        found: set[int] = set().union(*[self.tests.get(place, set()) for place in places])
        return sorted(found, key=lambda test: self.seconds[test])


class MutationRun:
    """A plugin of pytest: runs the mutants instead of the tests."""

    def __init__(self, patterns: Sequence[str], options: Options) -> None:
        self._patterns = patterns
        self._options = options
        self.results: list[tuple[Mutant, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        reach = in_child(lambda: _reach(items), silent=True)
        if reach.failed:
            raise pytest.UsageError(f"Tests fail without a mutant: {', '.join(reach.failed)}")
        chosen = [(mutant, tree) for mutant, tree in self._mutants()]
        sample = self._options.sample
        if 0 < sample < len(chosen):
            chosen = random.Random(self._options.seed).sample(chosen, sample)  # noqa: S311 - a sample, no secret
        print(f"\n{len(chosen)} mutants, {len(items)} tests", flush=True)  # noqa: T201 - a command
        reasons = accepted()
        for mutant, result in _judged(items, reach, chosen, self._options.jobs):
            self.results.append((mutant, result))
            if result in {SURVIVED, NOT_REACHED} and mutant.key not in reasons:
                print(f"{len(self.results)}: {result}: {mutant}", flush=True)  # noqa: T201 - a command
        return True

    def _mutants(self) -> Iterator[tuple[Mutant, ast.Module]]:
        for pattern in self._patterns:
            for file in sorted(ROOT.glob(pattern)):
                path = str(file.relative_to(ROOT))
                if not self._options.files or path in self._options.files:
                    tree = ast.parse(file.read_text())
                    yield from ((mutant, tree) for mutant in mutants(path, tree))


def _reach(items: Sequence[pytest.Item]) -> Reach:
    reach, entered = Reach(), set()
    prefix = f"{ROOT}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.add(frame.f_code)

    for number, item in enumerate(items):
        entered.clear()
        start_s = time.monotonic()
        threading.setprofile(note)
        sys.setprofile(note)
        passed = _passes(item)
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # as documented
        reach.seconds[number] = time.monotonic() - start_s
        if not passed:
            reach.failed.append(item.nodeid)
        for code in entered.copy():
            if code.co_filename.startswith(prefix):
                place = f"{code.co_filename.removeprefix(prefix)} {code.co_qualname.split('.<locals>')[0]}"
                reach.tests.setdefault(place, set()).add(number)
    return reach


def _passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))


def _judged(
    items: Sequence[pytest.Item], reach: Reach, chosen: Sequence[tuple[Mutant, ast.Module]], jobs: int
) -> Iterator[tuple[Mutant, str]]:
    waiting = list(reversed(chosen))
    running: dict[int, tuple[Mutant, float]] = {}
    while waiting or running:
        # 1. Start as many as there may be.
        while waiting and len(running) < jobs:
            mutant, tree = waiting.pop()
            tests = reach.of(mutant)
            if not tests:
                yield mutant, NOT_REACHED
                continue
            limit_s = _PATIENCE_S + 5 * sum(reach.seconds[test] for test in tests)
            running[_start(items, tests, mutant, tree, limit_s)] = mutant, time.monotonic() + limit_s

        # 2. Collect those that ended, and end those that hang.
        time.sleep(0.005)
        for child, (mutant, end_s) in list(running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del running[child]
                yield mutant, {0: SURVIVED, 3: NOT_POSSIBLE}.get(os.waitstatus_to_exitcode(status), KILLED)
            elif time.monotonic() > end_s:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                del running[child]
                yield mutant, TIMED_OUT


def _start(items: Sequence[pytest.Item], tests: Sequence[int], mutant: Mutant, tree: ast.Module, limit_s: float) -> int:
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    code = 1
    try:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, most))
        cpu_s = ceil(limit_s)  # holds, too, if the run that waits for it is killed
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        _silence()
        plant(mutant, tree)
        code = 0 if all(_passes(items[test]) for test in tests) else 1
    except NotPossible:
        code = 3
    finally:
        os._exit(code)


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def in_child(work: Callable[[], T], *, silent: bool) -> T:
    """What `work` returns in a forked process; this one stays as it is."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if not child:
            code = 1
            try:
                if silent:
                    _silence()
                Path(file.name).write_bytes(pickle.dumps(work()))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            raise pytest.UsageError("The tests without a mutant did not end well")
        return cast(T, pickle.loads(Path(file.name).read_bytes()))  # noqa: S301 - written above


def accepted() -> dict[str, str]:
    """The mutants that no test has to find, by key: the reason."""
    lines = [line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("  # ", 1) for line in lines)  # type: ignore[misc]  # each line has a reason


def report(results: Sequence[tuple[Mutant, str]], *, whole: bool = True) -> str:
    """The counts of each file and the share that was killed; before them what was accepted and exists no more.

    Args:
        whole: the results are of all mutants of their files, so an accepted one that is missing exists no more.
    """
    reasons = accepted()
    by_file: dict[str, Counter[str]] = {}
    lines = []
    for mutant, result in results:
        found = result in {KILLED, TIMED_OUT}
        counts = by_file.setdefault(mutant.path, Counter())
        counts["accepted" if not found and mutant.key in reasons else result] += 1
    if whole:
        keys = {mutant.key for mutant, _ in results}
        gone = [key for key in reasons if key.partition(" ")[0] in by_file and key not in keys]
        lines += [f"accepted, but there is no such mutant: {key}" for key in gone]
    lines.append("")
    total: Counter[str] = Counter()
    for path, counts in sorted(by_file.items()):
        lines.append(f"{path}: {_line(counts)}")
        total += counts
    lines.append(f"all: {_line(total)}")
    return "\n".join(lines)


def _line(counts: Counter[str]) -> str:
    found = counts[KILLED] + counts[TIMED_OUT]
    judged = found + counts[SURVIVED] + counts[NOT_REACHED]
    share = f"{100 * found / judged:.1f} % killed" if judged else "nothing to judge"
    return f"{share} ({', '.join(f'{count} {what}' for what, count in sorted(counts.items()))})"


def _run_group(number: int, options: Options) -> list[tuple[Mutant, str]]:
    patterns, tests = GROUPS[number]
    run = MutationRun(patterns, options)
    arguments = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
    paths = [str(path) for pattern in tests for path in sorted(ROOT.glob(pattern))]
    code = pytest.main([*arguments, *paths], plugins=[run])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise SystemExit(f"pytest ended with {code!r}")
    return run.results


def main() -> None:
    parser = argparse.ArgumentParser(description="Plants small faults, and tells which no test finds.")
    parser.add_argument("files", nargs="*", help="only these, as app/batching/queue.py")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of each group, drawn by chance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    options = Options(given.files, given.sample, given.seed, given.jobs)
    os.chdir(ROOT)
    results: list[tuple[Mutant, str]] = []
    for number, (patterns, _) in enumerate(GROUPS):
        paths = {str(file.relative_to(ROOT)) for pattern in patterns for file in ROOT.glob(pattern)}
        if not given.files or paths.intersection(given.files):
            results += in_child(partial(_run_group, number, options), silent=False)
    print(report(results, whole=not given.sample))  # noqa: T201 - a command


if __name__ == "__main__":
    main()
