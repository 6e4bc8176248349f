"""Requests of random shapes, rows and fates through one model: each caller gets its own values in its own shape."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.shapes.buckets import ShapeBuckets
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.size_rules import FollowedSize
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import DeadlineExceeded, InvalidRequest
from app.core.inference import Array, InferenceRequest, InferenceResponse, InnerShapes, ModelSignature, TensorSpec
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, run_in_fake_time

MAX_ROWS = 4
PAD = -7.0
ALL = 10**6

NOTHING: frozenset[tuple[int, InnerShapes]] = frozenset()

#: Of the buckets 3, 5 and 8, 10.
COMPILED: frozenset[tuple[int, InnerShapes]] = frozenset(
    {(rows, ((high, wide), (length,))) for rows in (1, 4) for high in (3, 8) for wide in (3, 5, 8) for length in (5, 8)}
)

#: The model rejects it.
BAD = -1.0

SIGNATURE = ModelSignature(
    "serving_default",
    {
        "image": TensorSpec("image", np.dtype(np.float32), (None, None, None)),
        "words": TensorSpec("words", np.dtype(np.float32), (None, None)),
    },
    {
        "turned": TensorSpec("turned", np.dtype(np.float32), (None, None, None)),
        "echo": TensorSpec("echo", np.dtype(np.float32), (None, None)),
        "total": TensorSpec("total", np.dtype(np.float32), (None,)),
        "every_third": TensorSpec("every_third", np.dtype(np.float32), (None, None)),
    },
)


class Echo:
    """Gives back what it gets, no more than `most` words of it, and a sum that leaves padding out."""

    def __init__(self, most: int) -> None:
        self.signatures = {"serving_default": SIGNATURE}
        self.most = most
        self.shapes: list[tuple[int, ...]] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        image, words = inputs["image"], inputs["words"]
        self.shapes.append((*image.shape, words.shape[1]))
        if (image == BAD).any():
            raise InvalidRequest("bad")
        total = np.where(words == PAD, 0, words).sum(1)
        return {
            "turned": image.transpose(0, 2, 1),
            "echo": words[:, : self.most],
            "total": total,
            "every_third": words[:, 1::3],
        }

    def close(self) -> None: ...


@dataclass(frozen=True)
class Call:
    at_s: float
    rows: int
    high: int
    wide: int
    length: int
    bad: bool
    cancel_after_s: float
    timeout_s: float


calls = st.builds(
    Call,
    at_s=st.sampled_from([0.0, 0.0, 0.1, 1.0, 1.5, 2.5]),
    rows=st.integers(0, 9),
    high=st.integers(0, 5),
    wide=st.integers(1, 5),
    length=st.integers(0, 9),
    bad=st.sampled_from([False, False, False, False, True]),
    cancel_after_s=st.sampled_from([inf, inf, inf, 0.0, 0.3, 1.2]),
    timeout_s=st.sampled_from([inf, inf, inf, 0.7]),
)


def sent_by(number: int, call: Call) -> dict[str, Array]:
    """Values that tell callers, rows and places apart."""
    rows = number + 1 + np.arange(call.rows, dtype=np.float32) / 16
    image = np.broadcast_to(rows[:, np.newaxis, np.newaxis], (call.rows, call.high, call.wide)).copy()
    image += np.arange(call.wide, dtype=np.float32) / 256
    if call.bad:
        image[...] = BAD
    return {"image": image, "words": np.repeat(rows[:, np.newaxis], call.length, 1)}


async def play(  # noqa: PLR0917 - what may be chosen
    schedule: list[Call],
    buckets: ShapeBuckets,
    most: int,
    devices: int,
    call_cells: float = 0.0,
    compiled: frozenset[tuple[int, InnerShapes]] = frozenset(),
) -> tuple[list[object], Echo]:
    loop = asyncio.get_running_loop()
    batcher = Batcher(
        [FakeDevice(1.0, f"fake:{number}") for number in range(devices)],
        WorkConserving(),
        BatcherOptions(1000, admission=False),
        clock=loop.time,
    )
    echo = Echo(most)
    padding = ShapePadding(
        {"image": ("h", "w"), "words": ("n",)},
        {"turned": ("w", "h"), "echo": ("n",), "total": (), "every_third": (FollowedSize("n", 1, (0, 1, 1), 1),)},
        {"image": PAD, "words": PAD},
        buckets,
        call_cells,
        compiled=compiled,
    )
    model = Model(
        RequestPlacement("m", 1, echo, BatchSizes.powers_of_two(MAX_ROWS), paddings={"serving_default": padding}),
        batcher,
    )
    seen: list[object] = [None] * len(schedule)

    async def client(number: int, call: Call) -> None:
        await asyncio.sleep(call.at_s)
        request = InferenceRequest(sent_by(number, call), deadline_s=loop.time() + call.timeout_s)
        task = asyncio.create_task(model.infer(request))
        if call.cancel_after_s != inf:
            loop.call_later(call.cancel_after_s, task.cancel)
        try:
            seen[number] = await task
        except (InvalidRequest, DeadlineExceeded, asyncio.CancelledError) as error:
            seen[number] = error

    await asyncio.gather(*[client(number, call) for number, call in enumerate(schedule)])
    assert batcher.queue.rows == 0
    await model.close()  # whoever is counted as under way for ever would keep it open
    return seen, echo


@settings(max_examples=300, deadline=None)
@given(
    schedule=st.lists(calls, min_size=1, max_size=20),
    buckets=st.sampled_from([ShapeBuckets(), ShapeBuckets((3, 5)), ShapeBuckets((100,))]),
    most=st.sampled_from([ALL, ALL, 4]),
    devices=st.integers(1, 2),
    call_cells=st.sampled_from([0.0, 5.0, 1e6]),
    compiled=st.sampled_from([NOTHING, NOTHING, COMPILED]),
)
def test_laws(  # noqa: PLR0917 - as play
    schedule: list[Call],
    buckets: ShapeBuckets,
    most: int,
    devices: int,
    call_cells: float,
    compiled: frozenset[tuple[int, InnerShapes]],
) -> None:
    seen, echo = run_in_fake_time(play(schedule, buckets, most, devices, call_cells, compiled))
    for number, (call, answer) in enumerate(zip(schedule, seen, strict=True)):
        sent = sent_by(number, call)
        if isinstance(answer, InvalidRequest):
            assert call.bad  # nobody is blamed for a neighbour
        elif isinstance(answer, DeadlineExceeded):
            assert call.timeout_s != inf
        elif isinstance(answer, asyncio.CancelledError):
            assert call.cancel_after_s != inf
        else:
            assert isinstance(answer, InferenceResponse)
            assert not (call.bad and call.rows and call.high)
            np.testing.assert_array_equal(answer.outputs["turned"], sent["image"].transpose(0, 2, 1))
            np.testing.assert_allclose(answer.outputs["total"], sent["words"].sum(1), rtol=1e-6)
            np.testing.assert_array_equal(answer.outputs["echo"], sent["words"][:, :most])
            np.testing.assert_array_equal(answer.outputs["every_third"], sent["words"][:, 1::3])
    assert all(rows <= MAX_ROWS for rows, *_ in echo.shapes)
    for rows, *sizes in echo.shapes:  # padded to what somebody sent, or to the top of a bucket that was compiled
        if (rows, (tuple(sizes[:2]), tuple(sizes[2:]))) in compiled:
            continue
        for place, size in enumerate(sizes):
            assert size in {(call.high, call.wide, call.length)[place] for call in schedule}


def test_what_is_near_shares_a_call_and_what_is_far_does_not() -> None:
    schedule = [Call(0.0, 1, 5, wide, 9, False, inf, inf) for wide in (1, 5, 3, 20)]
    seen, echo = run_in_fake_time(play(schedule, ShapeBuckets(), ALL, 1))
    assert echo.shapes == [(4, 5, 5, 9), (1, 5, 20, 9)]  # the fourth row is nobody's
    assert [answer.timing.rows for answer in seen if isinstance(answer, InferenceResponse)] == [3, 3, 3, 1]


def test_what_was_compiled_for_a_bucket_is_called_with_its_size() -> None:
    schedule = [Call(0.0, rows, 5, 3, 4, False, inf, inf) for rows in (4, 2, 1)]
    seen, echo = run_in_fake_time(play(schedule, ShapeBuckets(), ALL, 1, compiled=frozenset({(4, ((8, 8), (8,)))})))
    assert echo.shapes == [(4, 8, 8, 8), (4, 8, 8, 8)]
    assert [answer.outputs["echo"].shape for answer in seen if isinstance(answer, InferenceResponse)] == [
        (4, 4), (2, 4), (1, 4),
    ]  # fmt: skip
    _, echo = run_in_fake_time(play(schedule[1:2], ShapeBuckets(), ALL, 1, compiled=frozenset({(4, ((8, 8), (8,)))})))
    assert echo.shapes == [(2, 5, 3, 4)]  # not of a size that was compiled


def test_where_a_call_is_dear_what_is_far_shares_one_too() -> None:
    schedule = [Call(0.0, 1, 5, wide, 9, False, inf, inf) for wide in (1, 5, 20)]
    seen, echo = run_in_fake_time(play(schedule, ShapeBuckets(), ALL, 1, 1e6))
    assert echo.shapes == [(4, 5, 20, 9)]
    assert [answer.outputs["turned"].shape for answer in seen if isinstance(answer, InferenceResponse)] == [
        (1, 1, 5), (1, 5, 5), (1, 20, 5),
    ]  # fmt: skip


def test_padding_rows_are_filled_by_shorter_requests() -> None:
    schedule = [Call(0.0, 3, 5, 20, 9, False, inf, inf), Call(0.0, 1, 5, 3, 9, False, inf, inf)]
    _, echo = run_in_fake_time(play(schedule, ShapeBuckets(), ALL, 1, 0.0))
    assert echo.shapes == [(4, 5, 20, 9)]


def test_a_lone_request_is_not_padded() -> None:
    _, echo = run_in_fake_time(play([Call(0.0, 1, 5, 3, 9, False, inf, inf)], ShapeBuckets(), ALL, 1))
    assert echo.shapes == [(1, 5, 3, 9)]


def test_after_an_output_of_another_shape_than_expected_only_equal_shapes_share_a_call() -> None:
    first = [Call(0.0, 1, 1, wide, 2, False, inf, inf) for wide in (1, 2)]
    later = [Call(9.0, 1, 1, wide, 2, False, inf, inf) for wide in (1, 2, 2)]
    seen, echo = run_in_fake_time(play(first + later, ShapeBuckets(), 1, 1))
    assert echo.shapes[:3] == [(2, 1, 2, 2), (1, 1, 1, 2), (1, 1, 2, 2)]
    assert sorted(echo.shapes[3:]) == [(1, 1, 1, 2), (2, 1, 2, 2)]
    assert all(isinstance(answer, InferenceResponse) for answer in seen)
