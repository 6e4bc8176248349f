"""What is told of rows, and how requests run: a page that is asked at any moment says both or neither."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.events import Event, RowsProbed
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.improvement import Improvement
from app.loading.rows.row_independence import RowIndependence
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel

SIZES = BatchSizes.powers_of_two(8)


class Turns:
    """The event loop: what is to run in its next turn, and what the instruments were told."""

    def __init__(self) -> None:
        self.next: list[Callable[[], object]] = []
        self.told: list[Event] = []

    def tell(self, event: Event) -> None:
        self.next.append(partial(self.told.append, event))

    def run(self, work: Callable[[], None]) -> None:
        self.next.append(work)

    def take(self) -> None:
        now, self.next = self.next, []
        for work in now:
            work()


def improved(rows: RowIndependence, loaded: FakeLoadedModel, turns: Turns) -> tuple[Model, Improvement]:
    def placed() -> RequestPlacement:
        return RequestPlacement("m", 1, loaded, SIZES, signatures=rows.settled(loaded.signatures))

    model = Model(placed(), Batcher([FakeDevice(0.0)], WorkConserving(), BatcherOptions(100)))
    return model, Improvement(
        model,
        loaded,
        BudgetedModel(loaded, TimeBudget(60)),
        sizes=SIZES,
        rows=rows,
        settings=Settings(),
        place=lambda **_: placed(),
        tell=turns.tell,
        on_loop=turns.run,
        memory_trial=lambda *_: pytest.fail("its calls are small"),
    )


@pytest.mark.parametrize("change", ["proven", "disproved"])
def test_requests_follow_in_the_turn_in_which_it_is_told(change: str) -> None:
    turns, loaded = Turns(), FakeLoadedModel()
    rows = RowIndependence("m", {})
    signatures = rows.by_graph(loaded.signatures)
    name = next(each for each in signatures if signatures[each].shares_calls)

    async def main() -> None:
        model, improvement = improved(rows, loaded, turns)

        def alone() -> str:
            return model.signatures[name].why_alone()

        def check(told: str) -> None:
            """In every turn, both are as before, or both are new."""
            while turns.next:
                before = alone(), len(turns.told)
                turns.take()
                assert (alone() != before[0]) == (len(turns.told) != before[1])
            (*_, last) = turns.told
            assert isinstance(last, RowsProbed)
            assert (last.proof, bool(alone())) == (told, not told)

        improvement.tell_rows()
        turns.take()
        rows.by_traffic(name, 8)
        check("traffic")
        if change == "disproved":
            rows.stopped(name, "sharing", "its rows see each other")
            check("")

    asyncio.run(main())


def test_what_is_known_of_rows_keeps_no_version_that_has_ended() -> None:
    """A trial or a check that is under way may have it still."""
    turns, loaded = Turns(), FakeLoadedModel()
    rows = RowIndependence("m", {})
    rows.by_graph(loaded.signatures)

    async def main() -> list[weakref.ref[Any]]:
        model, improvement = improved(rows, loaded, turns)
        improvement.release()
        return [weakref.ref(model), weakref.ref(improvement)]

    held = asyncio.run(main())
    gc.collect()
    assert [each() for each in held] == [None, None]
    rows.by_traffic(next(iter(loaded.signatures)), 8)
