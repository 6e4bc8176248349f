"""docs/architecture.md, "The way of a request": its table of functions is what a request runs through, and its figures
hold."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from docs.way_of_a_request import Hop, Way, shortest_ways
from tests.deploy.manifests import ROOT
from tests.server.test_single_process import _surroundings  # noqa: F401 - a fixture

SECTION = (ROOT / "docs/architecture.md").read_text().partition("\n## The way of a request\n")[2].partition("\n## ")[0]
STEPS = re.findall(r"^\| `(app/\S+)` \| `([\w.]+)` \|", SECTION, re.MULTILINE)
MOST = re.findall(r"^\| (?:JSON|gRPC)[^|]*\| (\d+) \| (\d+) \|", SECTION, re.MULTILINE)

#: The test's runtime is not TensorFlow.
TENSORFLOW = "app/runtimes/tensorflow/"


def test_a_request_runs_through_the_functions_of_the_page_and_no_more_than_it_says(
    _surroundings: None,  # noqa: F811, PT019 - the same one, asked for by this test
    signals_restored: None,
) -> None:
    ways = shortest_ways()
    check_steps(ways)
    for way, (calls, files) in zip((ways["json"], ways["grpc"]), MOST, strict=True):
        assert way.calls <= int(calls)
        assert way.files <= int(files)


def check_steps(ways: Mapping[str, Way]) -> None:
    wanted = [step for step in STEPS if not step[0].startswith(TENSORFLOW)]
    assert len(wanted) > 15
    called = [(hop.file, hop.function) for hop in ways["json"].hops]
    assert [step for step in dict.fromkeys(called) if step in wanted] == list(dict.fromkeys(wanted))


@pytest.mark.parametrize(
    ("files", "climbs"),
    [
        ([("a", ""), ("b", "a"), ("b", "b")], 0),
        ([("a", ""), ("b", "a"), ("a", "b"), ("b", "a")], 1),
        ([("a", ""), ("b", "a"), ("a", "")], 0),  # the event loop begins anew: nothing turns back
    ],
)
def test_a_climb_is_a_call_into_a_file_that_was_reached_before_the_callers(
    files: list[tuple[str, str]], climbs: int
) -> None:
    way = Way([Hop(file, "f", caller, 0) for file, caller in files])
    assert (way.calls, way.files, way.climbs) == (len(files), 2, climbs)
