"""What is proven of rows is proven for these weights and this many different rows, and a part is computed once.

A proof stands for what was tried: the same graph with other values may be another model, and rows may see each other
only where there are several of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array
from app.core.reply import Answer
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.row_probe import probe_rows
from app.loading.rows.row_proofs import Disproof, KeptProof, RowProofs
from bench.simulator.peer_policies import WorkConserving
from tests.loading.rows.test_row_probe import NumpyModel
from tests.support.fakes import KEY, FakeDevice, FakeReply, batch_function, request_now, run_in_fake_time
from tests.support.waiting import wait_until

NAMES = st.sampled_from(["a", "b"])


@given(
    steps=st.lists(st.tuples(st.sampled_from(["keep", "disprove", "known", "restart"]), NAMES, NAMES), max_size=20),
)
def test_a_proof_is_found_for_its_graph_with_its_weights_alone(steps: list[tuple[str, str, str]]) -> None:
    """A disproof is found for all weights of its graph, and outlives proofs."""
    proofs, kept, disproved = RowProofs(None), dict[tuple[str, str], KeptProof](), dict[str, Disproof]()
    for number, (what, graph, weights) in enumerate(steps):
        if what == "keep":
            kept[graph, weights] = KeptProof({"y": ("probe", number + 1)}, "")
            proofs.keep(graph, weights, kept[graph, weights])
        elif what == "disprove":
            disproved[graph] = Disproof(f"{number}")
            proofs.disprove(graph, f"{number}")
        for graph_, weights_ in [(g, w) for g in "ab" for w in "ab"]:
            assert proofs.known(graph_, weights_) == (disproved.get(graph_) or kept.get((graph_, weights_)))


def test_so_it_is_for_proofs_that_are_read_from_disk(tmp_path: Path) -> None:
    proof = KeptProof({"y": ("probe", 4)}, "")
    proofs = RowProofs(tmp_path)
    proofs.keep("g", "w", proof)
    assert proofs.known("g", "w") == proof
    wait_until(lambda: RowProofs(tmp_path).known("g", "w") == proof)
    for other in (("g", "v"), ("h", "w"), ("g", "")):
        assert proofs.known(*other) is None
        assert RowProofs(tmp_path).known(*other) is None


def seeing(others: int) -> Callable[[dict[str, Array]], Array]:
    """Rows change where a call has more than so many others that differ."""

    def run(inputs: Mapping[str, Array]) -> Array:
        x = inputs["x"]
        distinct = len(np.unique(x, axis=0))
        return x + (distinct > others + 1)

    return run


@pytest.mark.parametrize("others", [1, 2, 3, 4, 5, 6])
def test_rows_that_change_beside_several_others_share_no_call_in_which_they_could(others: int) -> None:
    """`probe` tries half of a call's rows at least as different ones, in calls of all sizes."""
    model = NumpyModel(seeing(others))
    found = probe_rows(BudgetedModel(model, TimeBudget(60.0)), model.signature, BatchSizes.powers_of_two(16))
    assert not found.proven or found.rows < others + 2, f"{others + 2} rows see each other, and may share calls"


@pytest.mark.parametrize("rows", [5, 9, 12])
@pytest.mark.parametrize("callers", [1, 2])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_large_request_whose_parts_are_no_parts_of_its_answer_is_computed_once_more_as_a_whole(
    rows: int, callers: int, devices: int
) -> None:
    """The first calls tell; no other part is called, and the whole once for each caller."""

    async def main() -> None:
        calls: list[list[float]] = []

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            x = inputs["x"]
            calls.append(x[:, 0].tolist())
            return {"y": x[x[:, 0] % 2 == 0]}  # not as many rows as it got

        function = batch_function(run, 4)
        batcher = Batcher(
            [FakeDevice(1.0, hardware=n) for n in range(devices)],
            WorkConserving(),
            BatcherOptions(999),
            clock=asyncio.get_running_loop().time,
        )
        replies = [FakeReply() for _ in range(callers)]
        wholes = [np.stack([np.arange(rows) + 100 * n] * 2, 1).astype(np.float32) for n in range(callers)]
        for reply, x in zip(replies, wholes, strict=True):
            batcher.submit(KEY, function, request_now(batcher, {"x": x}, rows, reply))
        await batcher.drain()
        whole = [each for each in calls if len(each) == rows]
        assert sorted(whole) == [x[:, 0].tolist() for x in wholes], "each whole is computed once"
        assert len(calls) <= callers + devices, f"a part was computed for nothing: {calls}"
        for reply in replies:
            assert len(reply.answers) == 1
            assert isinstance(reply.answers[0], Answer)

    run_in_fake_time(main())
