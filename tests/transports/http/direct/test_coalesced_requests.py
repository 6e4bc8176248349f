"""Requests of one turn that are computed together, played through connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.events import BatchExecuted, RequestsFinished
from app.core.inference import Array, InferenceRequest, ModelSignature, TensorSpec
from app.core.interfaces import Cancellable
from app.core.reply import COMPLETED
from app.model import Model
from app.placement import RequestPlacement
from tests.support.fakes import FakeLoadedModel, run_in_fake_time
from tests.transports.http1.connection_world import (
    COMPUTE_S,
    INFER,
    TIMEOUT_MS,
    Transport,
    World,
    request,
)
from tests.transports.http1.test_http1_connection import CASES


def sent_at_once(
    direct: bool, requests: Sequence[bytes], change: Callable[[World], None] = lambda _: None
) -> tuple[World, list[list[tuple[int, dict[str, str], bytes]]]]:
    """Each from a client of its own, all readable at once, to a model that is known to be quick."""

    async def main() -> tuple[World, list[list[tuple[int, dict[str, str], bytes]]]]:
        world = World(direct, inline_s=2 * COMPUTE_S)
        change(world)
        await world.hear(request(), 2 * COMPUTE_S)  # requests are not coalesced before the first
        del world.events[:], world.loaded.function.calls[:]
        clients = [world.connect() for _ in requests]
        for (connection, _), each in zip(clients, requests, strict=True):
            connection.data_received(each)
        await asyncio.sleep(4 * COMPUTE_S)
        return world, [world.replies(transport) for _, transport in clients]

    return run_in_fake_time(main())


def rows(*values: float, **headers: str) -> bytes:
    return request(body={"instances": [[value, 0.0] for value in values]}, headers=headers)


def infer(*values: float, **fields: str) -> bytes:
    """The same in the Open Inference Protocol."""
    data = [number for value in values for number in (value, 0.0)]
    body = {"inputs": [{"name": "x", "shape": [len(values), 2], "datatype": "FP32", "data": data}]}
    encoding = fields.pop("encoding", "")
    return request(INFER, {**body, **fields}, {"Accept-Encoding": encoding} if encoding else {})


def untimed(replies: list[tuple[int, dict[str, str], bytes]]) -> list[object]:
    """Whom a request shares a call with is a matter of the way it took, and so is what Server-Timing says."""
    return [
        (status, {name: value for name, value in headers.items() if name != "server-timing"}, body)
        for status, headers, body in replies
    ]


@given(
    st.lists(
        st.one_of(
            st.lists(st.floats(0, 100, width=16), min_size=1, max_size=9).map(lambda values: rows(*values)),
            st.lists(st.floats(0, 100, width=16), min_size=1, max_size=3).map(lambda values: rows(*values, Other="1")),
            st.builds(
                lambda values, fields: infer(*values, **fields),
                st.lists(st.floats(0, 100, width=16), min_size=1, max_size=99),
                st.sampled_from([{}, {"id": "7"}, {"encoding": "gzip"}, {"id": "a", "encoding": "gzip"}]),
            ),
            # Who fails a whole batch does so to whoever shares it, which is a matter of time.
            st.sampled_from([CASES[name] for name in CASES if name != "model fails"]),
        ),
        max_size=12,
    )
)
def test_coalesced_requests_are_answered_as_if_alone(requests: list[bytes]) -> None:
    by_asgi, expected = sent_at_once(False, requests)
    direct, replies = sent_at_once(True, requests)
    assert list(map(untimed, replies)) == list(map(untimed, expected))
    assert sorted(direct.told()) == sorted(by_asgi.told())


def answer_ragged(world: World) -> None:
    """The model repeats the first number of each row as often as the second one says."""

    def run(_: str, inputs: Mapping[str, Any], __: tuple[str, ...]) -> dict[str, Any]:
        x = inputs["x"].astype(int)
        return {"y": np.repeat(x[:, 0], x[:, 1]), "y_1": np.cumsum([0, *x[:, 1]])}

    world.loaded.run = run  # type: ignore[method-assign]  # of a fake
    outputs = {name: TensorSpec(name, np.dtype(np.int64), (None,)) for name in ("y", "y_1")}
    known = world.loaded.signatures["serving_default"]
    signature = replace(known, outputs=outputs, ragged_outputs={"y": ("y_1",)})
    cast(dict[str, ModelSignature], world.loaded.signatures)["serving_default"] = signature


def test_ragged_answers_are_not_cut_by_the_rows_of_coalesced_requests() -> None:
    requests = [request(body={"instances": rows}) for rows in ([[7, 2]], [[8, 0], [9, 3]], [[5, 1]])]
    _, expected = sent_at_once(False, requests, answer_ragged)
    _, replies = sent_at_once(True, requests, answer_ragged)
    assert [status for ((status, _, _),) in expected] == [200, 200, 200]
    assert list(map(untimed, replies)) == list(map(untimed, expected))


def batches(world: World) -> list[BatchExecuted]:
    return [event for event in world.events if isinstance(event, BatchExecuted)]


def test_coalesced_requests_share_one_call() -> None:
    world, replies = sent_at_once(True, [rows(1.0), rows(2.0, 3.0), rows(4.0)])
    assert [json.loads(body)["predictions"] for ((_, _, body),) in replies] == [
        [[2.0, 0.0]],
        [[4.0, 0.0], [6.0, 0.0]],
        [[8.0, 0.0]],
    ]
    assert world.loaded.function.calls == [[1.0, 2.0, 3.0, 4.0]]
    (batch,) = batches(world)
    assert (batch.rows, batch.padded_rows, len(batch.queue_s), batch.failed) == (4, 0, 3, 0)
    (told,) = [event for event in world.events if isinstance(event, RequestsFinished)]
    assert (told[:5], len(told.seconds)) == (("tensorflow_rest", "200", "m", 1, "serving_default"), 3)


def test_requests_of_the_open_inference_protocol_share_one_call() -> None:
    asked = [infer(1.0, id="a"), infer(2.0, 3.0), infer(4.0, id="c")]
    world, replies = sent_at_once(True, asked)
    documents = [json.loads(body) for ((_, _, body),) in replies]
    assert [each.get("id") for each in documents] == ["a", None, "c"]
    data = [[2.0, 0.0], [4.0, 0.0, 6.0, 0.0], [8.0, 0.0]]
    assert [each["outputs"][0]["data"] for each in documents] == data
    assert world.loaded.function.calls == [[1.0, 2.0, 3.0, 4.0]]


def test_requests_share_a_call_whatever_their_heads_have_that_nobody_reads() -> None:
    heads: list[dict[str, str]] = [
        {"traceparent": "00-1"},
        {"Accept": "*/*", "User-Agent": "a"},
        {"Content-Type": "application/json"},
        {"Connection": "keep-alive"},
    ]
    requests = [request(body={"instances": [[float(n), 0.0]]}, headers=head) for n, head in enumerate(heads)]
    requests.append(request("/v1/models/m/versions/1:predict", {"instances": [[4.0, 0.0]]}))
    world, replies = sent_at_once(True, requests)
    assert [json.loads(body)["predictions"] for ((_, _, body),) in replies] == [[[2.0 * n, 0.0]] for n in range(5)]
    assert world.loaded.function.calls == [[0.0, 1.0, 2.0, 3.0, 4.0, *[0.0] * 3]]  # padded to a batch size


def test_requests_that_end_their_connection_share_a_call_and_end_it() -> None:
    closing = [rows(float(n), Connection="close") for n in range(2)]
    world, replies = sent_at_once(True, [*closing, rows(2.0), rows(3.0)])
    assert [headers.get("connection") for ((_, headers, _),) in replies] == ["close", "close", None, None]
    assert world.loaded.function.calls == [[0.0, 1.0, 2.0, 3.0]]


def with_another_model(world: World) -> None:
    """It has the name n, and a quick function of its own."""
    loaded = FakeLoadedModel()
    costs = {"serving_default": {32: COMPUTE_S}}
    placement = RequestPlacement("n", 1, loaded, BatchSizes.powers_of_two(32), costs=costs)
    other = Model(placement, world.batcher)
    other.coalescable_rows = world.model.coalescable_rows  # type: ignore[method-assign]  # as quick
    world.repository.models["n", 1] = other
    cast(Any, world).other = loaded


def test_requests_of_several_models_in_turn_make_one_call_of_each() -> None:
    requests = [
        request(f"/v1/models/{'mn'[n % 2]}:predict", {"instances": [[float(n), 0.0]]}, {"x-request-id": str(n)})
        for n in range(8)
    ]
    world, replies = sent_at_once(True, requests, with_another_model)
    assert [json.loads(body)["predictions"] for ((_, _, body),) in replies] == [[[2.0 * n, 0.0]] for n in range(8)]
    assert world.loaded.function.calls == [[0.0, 2.0, 4.0, 6.0]]
    assert cast(Any, world).other.function.calls == [[1.0, 3.0, 5.0, 7.0]]
    assert {event.model for event in world.finished} == {"m", "n"}


def test_each_coalesced_request_has_the_timing_of_that_call() -> None:
    _, replies = sent_at_once(True, [rows(1.0), rows(2.0, 3.0), rows(4.0)])
    timings = {headers["server-timing"] for ((_, headers, _),) in replies}
    assert timings == {'queue;dur=0.000, compute;dur=0.000, batch;desc="4"'}  # no time passes in a call on the loop


def test_requests_with_a_priority_are_not_coalesced() -> None:
    urgent = [request(body={"instances": [[value, 0.0]]}, headers={"X-Request-Priority": "1"}) for value in (3.0, 4.0)]
    world, replies = sent_at_once(True, [urgent[0], rows(1.0), rows(2.0), urgent[1]])
    assert [json.loads(body)["predictions"] for ((_, _, body),) in replies] == [
        [[6.0, 0.0]], [[2.0, 0.0]], [[4.0, 0.0]], [[8.0, 0.0]]
    ]  # fmt: skip
    assert world.loaded.function.calls == [[1.0, 2.0], [3.0, 4.0]]


def test_requests_with_a_time_out_of_their_own_are_not_coalesced_and_keep_it() -> None:
    wrong = [rows(value, **{"X-Request-Timeout-Ms": "soon"}) for value in (1.0, 2.0)]
    world, replies = sent_at_once(True, [*wrong, rows(3.0), rows(4.0)])
    assert [status for ((status, _, _),) in replies] == [400, 400, 200, 200]
    assert world.loaded.function.calls == [[3.0, 4.0]]

    async def main() -> None:
        world = World(True, inline_s=2 * COMPUTE_S)
        await world.hear(rows(1.0), 2 * COMPUTE_S)
        clients = [world.connect() for _ in range(2)]
        for value, (connection, _) in enumerate(clients):
            slow = rows(5.0 + value, **{"X-Request-Timeout-Ms": "1"})
            connection.data_received(slow[:-3])
        await asyncio.sleep(2e-3)
        for connection, _ in clients:
            connection.data_received(slow[-3:])
        await asyncio.sleep(COMPUTE_S)
        assert [world.replies(transport)[0][0] for _, transport in clients] == [504, 504]
        assert world.loaded.function.computed == [1.0]

    run_in_fake_time(main())


def test_more_coalesced_rows_than_a_batch_take_several_calls() -> None:
    world, replies = sent_at_once(True, [rows(*[float(n)] * 9) for n in range(8)])
    assert [len(json.loads(body)["predictions"]) for ((_, _, body),) in replies] == [9] * 8
    assert [batch.rows for batch in batches(world)] == [27, 27, 18]


def test_an_invalid_request_is_rejected_apart_from_those_coalesced_with_it() -> None:
    _, replies = sent_at_once(True, [rows(1.0), rows(-2.0), rows(3.0), request(body={"instances": [[1.0]]})])
    assert [status for ((status, _, _),) in replies] == [200, 400, 200, 400]


@pytest.mark.parametrize("wrong", range(8))
def test_of_several_calls_each_reply_is_its_own_also_where_one_is_taken_apart(wrong: int) -> None:
    """Their ids and the numbers of their rows differ."""
    asked = [infer(*[-2.0 if n == wrong else float(n + 1)] * (9 - n % 2), id=f"r{n}") for n in range(8)]
    world, replies = sent_at_once(True, asked)
    assert len(batches(world)) > 3, "more than one call, and one of them again"
    for number, ((status, _, body),) in enumerate(replies):
        document = json.loads(body)
        if number == wrong:
            assert status == 400
            continue
        (output,) = document["outputs"]
        rows_asked = 9 - number % 2
        assert (status, document["id"], output["shape"]) == (200, f"r{number}", [rows_asked, 2])
        assert output["data"] == [2.0 * (number + 1), 0.0] * rows_asked


def test_a_failure_of_the_model_fails_those_of_its_call() -> None:
    world, replies = sent_at_once(True, [rows(1.0), CASES["model fails"].replace(b"[[NaN, 2.0]]", b"[[9e99,2.0]]")])
    assert [status for ((status, _, _),) in replies] == [200, 400]  # out of range: never computed
    assert not any(batch.failed for batch in batches(world))


async def beside_a_slow_body(seconds: float) -> tuple[World, list[Transport]]:
    """Two requests of the value 2 come with the end of one of the value 5, whose body takes so long."""
    world = World(True, inline_s=2 * COMPUTE_S)
    await world.hear(rows(1.0), 2 * COMPUTE_S)
    world.loaded.function.calls.clear()
    clients = [world.connect() for _ in range(3)]
    slow = rows(5.0)
    clients[0][0].data_received(slow[:-3])
    await asyncio.sleep(seconds)
    clients[0][0].data_received(slow[-3:])
    for connection, _ in clients[1:]:
        connection.data_received(rows(2.0))
    return world, [transport for _, transport in clients]


def test_a_request_whose_deadline_passes_while_its_body_arrives_is_not_computed() -> None:
    async def main() -> None:
        world, transports = await beside_a_slow_body(TIMEOUT_MS / 1e3)
        await asyncio.sleep(COMPUTE_S)
        assert [world.replies(transport)[0][0] for transport in transports] == [504, 200, 200]
        assert 5.0 not in world.loaded.function.computed

    run_in_fake_time(main())


def test_a_request_whose_body_comes_slowly_does_not_shorten_the_time_of_others() -> None:
    async def main() -> None:
        world, _ = await beside_a_slow_body(TIMEOUT_MS / 1e3 - COMPUTE_S / 2)
        await asyncio.sleep(0)
        assert [2.0, 2.0] in world.loaded.function.calls

    run_in_fake_time(main())


@pytest.mark.parametrize("values", [2, 2**15, 2**16 + 1])
def test_of_coalesced_requests_those_with_long_replies_are_answered_by_a_thread(values: int) -> None:
    async def main() -> None:
        world = World(True, inline_s=2 * COMPUTE_S)

        def run(_: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
            return {"y": np.repeat(inputs["x"][:, :1], values, axis=1)}

        cast(Any, world.loaded).run = run
        await world.hear(rows(1.0), 2 * COMPUTE_S)
        clients = [world.connect() for _ in range(3)]
        world.connection.tasks.clear()  # of all connections
        for value, (connection, _) in enumerate(clients):
            connection.data_received(rows(value))
        await asyncio.sleep(0)
        writing = list(world.connection.tasks)
        assert len(writing) == (3 if values > 2**16 else 0)
        await asyncio.gather(*writing)
        for value, (_, transport) in enumerate(clients):
            assert json.loads(world.replies(transport)[0][2])["predictions"] == [[value] * values]

    run_in_fake_time(main())


def test_a_bug_in_coalescing_loses_no_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Remote):
        def submit_coalesced(self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Any) -> Any:
            raise ZeroDivisionError

    async def main() -> None:
        world = World(True)
        broken: Any = Broken(world.model)
        world.repository.models["m", 1] = broken
        clients = [world.connect() for _ in range(3)]
        for connection, _ in clients:
            connection.data_received(rows(2.0))
        await asyncio.sleep(2 * COMPUTE_S)
        assert [world.replies(transport)[0][0] for _, transport in clients] == [200] * 3

    run_in_fake_time(main())
    assert "A bug kept 3 requests from being computed together" in caplog.text


def test_requests_queue_while_another_call_runs() -> None:
    async def main() -> None:
        world = World(True, inline_s=2 * COMPUTE_S, timed=False)
        clients = [world.connect() for _ in range(3)]
        for connection, _ in clients:
            connection.data_received(rows(1.0))  # nobody knows yet how long it takes
        await asyncio.sleep(0.1)
        late = [world.connect() for _ in range(2)]
        for connection, _ in late:
            connection.data_received(rows(2.0))
        await asyncio.sleep(0.1)
        assert world.batcher.queue.rows == 2
        await asyncio.sleep(2 * COMPUTE_S)
        assert [len(world.replies(transport)) for _, transport in clients + late] == [1] * 5

    run_in_fake_time(main())


class Remote:
    """A model behind another process: what joins is submitted as one request, and answered later."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def coalescable_rows(self, signature: str) -> int:
        return self._model.sizes.largest

    def submit_coalesced(self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Any) -> Cancellable:
        try:
            return self._model.submit(request, reply)
        except ServingError as error:
            reply.set_exception(error)
            return COMPLETED


def to_another_process(
    requests: Sequence[bytes],
    gone: Sequence[int] = (),
    *,
    drain: bool = False,
    callers: str = "",
    addresses: Sequence[str] = (),
) -> tuple[World, list[int]]:
    """The status of each; 0 for none."""

    async def main() -> tuple[World, list[int]]:
        world = World(True, callers=callers)
        remote: Any = Remote(world.model)
        world.repository.models["m", 1] = remote
        clients = [world.connect(*addresses[number : number + 1]) for number in range(len(requests))]
        if drain:
            world.batcher.begin_drain()
        for (connection, _), each in zip(clients, requests, strict=True):
            connection.data_received(each)
        await asyncio.sleep(0.1)
        for number in gone:
            clients[number][0].connection_lost(None)
        await asyncio.sleep(6 * COMPUTE_S)
        replies = [world.replies(transport) for _, transport in clients]
        return world, [each[0][0] if each else 0 for each in replies]

    return run_in_fake_time(main())


def test_requests_to_another_process_are_coalesced() -> None:
    world, codes = to_another_process([rows(float(n)) for n in range(5)])
    assert codes == [200] * 5
    assert [batch.rows for batch in batches(world)] == [5]
    assert [len(batch.queue_s) for batch in batches(world)] == [1]


def test_requests_of_different_callers_are_not_coalesced_where_these_are_told_apart() -> None:
    addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.2"]
    world, codes = to_another_process([rows(float(n)) for n in range(5)], callers="address", addresses=addresses)
    assert codes == [200] * 5
    assert [(batch.rows, len(batch.queue_s)) for batch in batches(world)] == [(5, 2)]


def test_a_rejection_from_there_lets_each_begin_alone() -> None:
    _, codes = to_another_process([rows(1.0), rows(-1.0), rows(2.0)])
    assert codes == [200, 400, 200]


def test_an_error_of_all_coalesced_requests_is_the_reply_to_each() -> None:
    _, codes = to_another_process([rows(1.0), rows(2.0)], drain=True)
    assert codes == [503, 503]


def test_a_coalesced_request_whose_client_disconnected_gets_no_reply() -> None:
    world, codes = to_another_process([rows(1.0), rows(2.0), rows(3.0)], gone=[1])
    assert codes == [200, 0, 200]
    assert sorted(event.code for event in world.finished) == ["200", "200", "499"]


def test_coalesced_requests_that_are_all_cancelled_are_never_computed() -> None:
    async def main() -> None:
        world = World(True)
        remote: Any = Remote(world.model)
        world.repository.models["m", 1] = remote
        first, _ = world.connect()
        first.data_received(rows(1.0))
        await asyncio.sleep(0.1)
        clients = [world.connect()[0] for _ in range(2)]
        for connection in clients:
            connection.data_received(rows(2.0))
        await asyncio.sleep(0.1)
        clients[0].connection_lost(None)
        assert world.batcher.queue.rows == 2
        clients[1].connection_lost(None)
        assert world.batcher.queue.rows == 0
        await asyncio.sleep(2 * COMPUTE_S)
        assert 2.0 not in world.loaded.function.computed

    run_in_fake_time(main())


class Noted:
    """What of a coalesced request is cancelled: the numbers of those that leave, and -1 for all of it."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []

    def cancel(self) -> None:
        self.cancelled.append(-1)

    def cancel_one(self, number: int) -> None:
        self.cancelled.append(number)


class Unanswered(Remote):
    """`handle`: that of what is submitted together; None: it finds no room together."""

    def __init__(self, model: Model, handle: Noted | None) -> None:
        super().__init__(model)
        self._handle = handle

    def submit_coalesced(self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Any) -> Any:
        return self._handle


def test_who_leaves_is_cancelled_by_its_number_and_the_last_one_takes_all_along() -> None:
    async def main() -> None:
        world, handle = World(True), Noted()
        remote: Any = Unanswered(world.model, handle)
        world.repository.models["m", 1] = remote
        clients = [world.connect()[0] for _ in range(3)]
        for number, connection in enumerate(clients):
            connection.data_received(rows(float(number)))
        await asyncio.sleep(0.1)
        for leaves, told in ((1, [1]), (2, [1, 2]), (0, [1, 2, -1])):
            clients[leaves].connection_lost(None)
            assert handle.cancelled == told

    run_in_fake_time(main())


def test_requests_that_find_no_room_together_begin_alone() -> None:
    async def main() -> None:
        world = World(True)
        remote: Any = Unanswered(world.model, None)
        world.repository.models["m", 1] = remote
        clients = [world.connect() for _ in range(3)]
        for number, (connection, _) in enumerate(clients):
            connection.data_received(rows(float(number)))
        await asyncio.sleep(0.1)
        clients[1][0].connection_lost(None)
        await asyncio.sleep(6 * COMPUTE_S)
        replies = [world.replies(transport) for _, transport in clients]
        assert [[status for status, _, _ in each] for each in replies] == [[200], [], [200]]

    run_in_fake_time(main())
