"""Settings that every suite needs before TensorFlow is imported, and what several suites put back."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

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


#: These run the same code many thousand times: traced, they would take longer than all other tests together, which
#: cover what they run.
_NOT_TRACED = {"laws", "hostile", "budgets"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _NOT_TRACED.intersection(item.path.relative_to(Path(__file__).parent).parts[:1]):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture
def signals_restored() -> Iterator[None]:
    """What the test does with SIGTERM and SIGINT ends with it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, disposition in before.items():
        signal.signal(number, disposition)


@pytest.fixture(params=["own", "aio"])
def grpc_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs once on each engine of gRPC, whatever the options say."""
    engine: str = request.param
    monkeypatch.setattr("app.transports.grpc.server.engine_of", lambda _: engine)
    return engine
