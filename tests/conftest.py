"""Settings that every suite needs before TensorFlow is imported, what several suites put back, and what is traced."""

import functools
import gc
import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx._transports.default as httpx_transports
import pytest
from coverage import Coverage
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

# TensorFlow's own log would drown pytest's report of a failure.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Choices of execution variants are remembered in the user's cache: not those of tests.
_CACHE = tempfile.TemporaryDirectory(prefix="ferry-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

# Neither chance nor the machine's speed decides a run: the same examples each time, without limits of time.
_CERTAIN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("certain", _CERTAIN, derandomize=True)
settings.load_profile("certain")

# Profiles that explore: other examples in each run. `make schedules` runs the second; a test with a number of
# examples of its own takes the profile's, if that is larger.
settings.register_profile("explore", _CERTAIN, derandomize=False, print_blob=True)
settings.register_profile("schedules", _CERTAIN, derandomize=False, max_examples=5000)

# test_frames_beside_h2.py against the library h2.
settings.register_profile("frames", _CERTAIN, derandomize=False, max_examples=100_000)

# `make mutants`: a mutant is found or not; the smallest example of it is of no use.
settings.register_profile(
    "mutants", _CERTAIN, derandomize=True, max_examples=50, phases=[Phase.explicit, Phase.generate]
)


# Each client of httpx reads all certificates (20 ms), and none of a test speaks TLS: all share what the first one read.
httpx_transports.create_ssl_context = functools.cache(httpx_transports.create_ssl_context)

# httpcore looks for this package at each request, on all paths (a third of a small request's time): it is not there.
if importlib.util.find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment] # so an import fails at once

# A shell has its background jobs ignore Control-C, and the programs that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers in processes of their own would compile app/ anew at each start (0.2 s).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_TESTS = Path(__file__).parent

#: These run the same code many thousand times, or mostly code that is not in app/, and so do tests of hypothesis.
#: Traced, they would take 1.5 to ten times as long; the other tests cover what they run.
_NOT_TRACED = {"awkward", "benchmark", "budgets", "hostile", "laws"}


#: Suites with the longest files (half a minute and more, some of one test) come first: of what is short, the two
#: processes of `make test` take turns until both end together.
_LONG_FIRST = (
    "awkward",
    "row_corpus",
    "hostile",
    "pipelines",
    "laws",
    "model_server",
    "live",
    "frontends",
    "deploy",
    "runtimes",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {suite: place for place, suite in enumerate(_LONG_FIRST)}
    items.sort(key=lambda item: places.get(_suite(item), len(places)))


def _suite(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tracing stands still for a test that runs the same lines many times, with its fixtures.

    pytest-cov's own mark `no_cover` leaves out the fixtures. In processes of xdist it does nothing: pytest-cov starts
    two tracings there, and when it stops one the other goes on.
    """
    stopped: list[Coverage] = []
    if not _is_traced(item):
        while tracing := Coverage.current():
            tracing.stop()
            stopped.append(tracing)
    try:
        return (yield)
    finally:
        for tracing in reversed(stopped):
            tracing.start()


def _is_traced(item: pytest.Item) -> bool:
    if item.get_closest_marker("not_traced") or _suite(item) in _NOT_TRACED:
        return False
    return not (isinstance(item, pytest.Function) and is_hypothesis_test(item.obj))


@pytest.fixture(scope="module", autouse=True)
def _few_objects_to_walk() -> None:
    """Collections leave out what is there before the first test of a file.

    A full one would walk TensorFlow's objects and all tests, 0.5 s each time, and every model that closes asks for one.
    To ask whether anything is left out already walks as much: it was a tenth of all tests' time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def signals_restored() -> Iterator[None]:
    """What the test does with SIGTERM and SIGINT ends with it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, disposition in before.items():
        signal.signal(number, disposition)
