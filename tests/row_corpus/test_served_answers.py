"""A real server answers each request to a model of the corpus as the model itself does, whoever else asks.

First requests after a load, lone ones and such from several callers, and requests after a swap of versions.
"""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.row_corpus.asked import Asked, asked
from tests.row_corpus.catalog import MIXING, TWINS, saved
from tests.row_corpus.row_case import DirectCalls, RowCase
from tests.support.processes import ServerProcess, serving
from tests.support.waiting import HANG_S, wait_until

#: Every so many cases of each kind.
_EACH = 4

_CALLERS = 6

SAMPLE: Sequence[RowCase] = (*MIXING[::_EACH], *TWINS[::_EACH])

#: Three rows are padded to four where a model may be padded.
_ROWS = (1, 3, 2, 5, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served_rows")
    for case in SAMPLE:
        shutil.copytree(saved() / case.name, folder / case.name)
    return folder


@pytest.fixture(scope="module")
def requests(folder: Path) -> list[list[Asked]]:
    """Of each model some."""
    direct = DirectCalls(folder)
    return [asked(direct, case, _ROWS) for case in SAMPLE]


@pytest.fixture(scope="module")
def server(
    folder: Path, requests: Sequence[object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """As users start it: ready as soon as models answer, so the first requests come before all is tried."""
    log = tmp_path_factory.mktemp("log") / "server.log"
    with serving(folder, log, ready_when="warm", load_budget_s=30, settle_s=0, poll_interval_s=0.2) as running:
        yield running


def problems_of(port: int, requests: Sequence[Asked]) -> list[str]:
    """One caller asks them one by one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    found = []
    for each in requests:
        connection.request("POST", each.path, each.body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if problem := each.problem(reply.status, reply.read()):
            found.append(f"{each.model}: {problem}")
    connection.close()
    return found


def problems_of_several(port: int, requests: Sequence[Sequence[Asked]]) -> list[str]:
    """Several callers ask all of them at the same time, each beginning with another request."""
    orders = [
        [each[(place + caller) % len(each)] for each in requests for place in range(len(each))]
        for caller in range(_CALLERS)
    ]
    with ThreadPoolExecutor(_CALLERS) as callers:
        return [each for found in callers.map(lambda order: problems_of(port, order), orders) for each in found]


def test_the_first_requests_are_answered_as_by_the_model(server: ServerProcess, requests: list[list[Asked]]) -> None:
    assert not problems_of(server.port, [each for own in requests for each in own])


def test_callers_at_the_same_time_are_answered_as_by_the_model(
    server: ServerProcess, requests: list[list[Asked]]
) -> None:
    assert not problems_of_several(server.port, requests)


def test_new_versions_answer_their_first_callers_as_by_the_model(
    server: ServerProcess, requests: list[list[Asked]], folder: Path
) -> None:
    for case in SAMPLE[::3]:
        shutil.copytree(folder / case.name / "1", folder / f".{case.name}")
        (folder / f".{case.name}").rename(folder / case.name / "2")
    swapped = {case.name for case in SAMPLE[::3]}
    of_swapped = [own for own in requests if own[0].model in swapped]
    found: list[str] = []

    def all_are_swapped() -> bool:
        found.extend(problems_of_several(server.port, of_swapped))
        return bool(found) or all(_serves(server, name, 2) for name in swapped)

    wait_until(all_are_swapped, "not all second versions are served")
    assert not found + problems_of_several(server.port, of_swapped)


def _serves(server: ServerProcess, model: str, version: int) -> bool:
    states = server.client.get(f"/v1/models/{model}").json()["model_version_status"]
    return {"version": str(version), "state": "AVAILABLE"}.items() <= max(
        states, key=lambda s: int(s["version"])
    ).items()
