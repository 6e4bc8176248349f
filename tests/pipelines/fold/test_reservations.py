"""What trees that arrive together get, and that those which are rejected keep no room."""

from __future__ import annotations

import numpy as np
import pytest

from app.core.errors import InvalidRequest, Overloaded
from app.pipelines.fold.agenda import Agenda
from app.pipelines.fold.arena import Arena
from app.pipelines.fold.forest import ForestRules
from app.pipelines.fold.forests import ForestInputs, Reserved
from app.pipelines.fold.reservations import Reservations
from tests.pipelines.fold.test_forests import asked_tree

CYCLE = ForestInputs(0, 2, np.array([[1, -1], [0, -1]], np.int32), None)


class Scene:
    def __init__(self, most_rows: int) -> None:
        self.arena = Arena({"state": ((1,), np.dtype(np.float32))}, most_rows, 1 << 20)
        self.agenda = Agenda(2, most_rows=8)
        self.reservations = Reservations(ForestRules(2, most_rows), [2], self.agenda, self.arena)


def test_each_gets_rows_of_its_own_and_a_number_if_nodes_are_to_be_computed() -> None:
    scene = Scene(100)
    leaf_only = ForestInputs(3, 0, np.empty((0, 2), np.int32), None)
    found = scene.reservations.reserve([asked_tree(4), leaf_only, asked_tree(2)])
    reserved = [each for each in found if isinstance(each, Reserved)]
    assert [(each.starts, len(each.rows), len(each.roots)) for each in reserved] == [(4, 7, 1), (3, 3, 3), (2, 3, 1)]
    assert [each.number is None for each in reserved] == [False, True, False]
    rows = np.concatenate([each.rows for each in reserved])
    assert len(set(rows.tolist())) == scene.arena.taken == 13


def test_one_that_is_malformed_is_rejected_alone_and_keeps_no_room() -> None:
    scene = Scene(100)
    first, bad, last = scene.reservations.reserve([asked_tree(4), CYCLE, asked_tree(2)])
    assert isinstance(bad, InvalidRequest)
    assert bad.__traceback__ is None, "it would hold the arrays of the request"
    assert [len(each.rows) for each in (first, last) if isinstance(each, Reserved)] == [7, 3]
    assert (scene.arena.taken, len(scene.agenda)) == (10, 2)


def test_where_there_is_no_room_for_all_those_before_get_it() -> None:
    scene = Scene(10)
    first, second, third = scene.reservations.reserve([asked_tree(4), asked_tree(4), asked_tree(2)])
    assert isinstance(second, Overloaded)
    assert [len(each.rows) for each in (first, third) if isinstance(each, Reserved)] == [7, 3]
    assert scene.arena.taken == 10


def test_a_request_without_a_number_keeps_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.pipelines.fold.agenda.MOST_REQUESTS", 64)
    for compiled in (True, False):
        scene = Scene(1000)
        if not compiled:
            monkeypatch.setattr(scene.agenda, "_compiled", None)
        *found, last = [scene.reservations.reserve([asked_tree(2)])[0] for _ in range(65)]
        assert all(isinstance(each, Reserved) for each in found)
        assert isinstance(last, Overloaded)
        assert scene.arena.taken == 64 * 3
