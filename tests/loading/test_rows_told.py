"""What is told of rows, and how requests run: a page that is asked at any moment says both or neither."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from app.batching.batcher import Batcher
from app.batching.policy import WorkConserving
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.events import Event, RowsProbed
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.improvement import Improvement
from app.loading.rows.row_independence import RowIndependence
from app.model import Model
from app.placement import RequestPlacement
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


@pytest.mark.parametrize("change", ["proven", "disproved"])
def test_requests_follow_in_the_turn_in_which_it_is_told(change: str) -> None:
    turns, loaded = Turns(), FakeLoadedModel()
    rows = RowIndependence("m", {})
    signatures = rows.by_graph(loaded.signatures)
    name = next(each for each in signatures if signatures[each].shares_calls)

    def placed() -> RequestPlacement:
        return RequestPlacement("m", 1, loaded, SIZES, signatures=rows.settled(loaded.signatures))

    async def main() -> None:
        model = Model(placed(), Batcher([FakeDevice(0.0)], WorkConserving(), 100))
        improvement = Improvement(
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
