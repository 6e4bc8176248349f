"""Inputs that are no rows, and rows of several kinds, from a SavedModel through a whole server and every protocol.

The oracle is the direct call of the SavedModel. Callers ask while a call is held, so that all of them wait together:
which of them share the next calls follows from rules, not from the machine's speed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import Array, InferenceRequest
from app.protocols.open_inference.datatypes import datatype_of
from tests.every_protocol.drivers.driver import Driver, Question, Rejected
from tests.every_protocol.live import Live, live
from tests.every_protocol.suite import DRIVERS, in_every_arrangement
from tests.support.models import unequal_savedmodels as models
from tests.support.waiting import HANG_S, until

#: They have rows of one input alone, or values of other types.
UNFIT = ("JSON rows", "JSON rows, HTTP/2", "a bare tensor", ".npy", "PNG", "JPEG")
TYPED = "open inference grpc, typed contents"  # this driver writes floats alone
FIT = [drive for drive in DRIVERS if not drive.name.endswith(UNFIT)]

REAL: dict[str, Any] = {
    "runtime": "tensorflow",
    "warm_up": True,
    "ready_when": "tuned",  # all is proven before the first request, however slow the machine is
    "execution_variant": "plain",
    "max_batch_size": 16,
    "max_queue_size": 1024,
    "batches_in_flight": 1,
}


class Watched:
    """The loaded model, which notes the inputs of its calls, and can hold them."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded
        self.calls: list[Mapping[str, Array]] = []
        self.waits = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded, name)

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self.calls.append({name: array.copy() for name, array in inputs.items()})
        self.waits.set()
        assert self._go.wait(HANG_S)
        answer: dict[str, Array] = self._loaded.run(signature, inputs, outputs)
        return answer

    def hold(self) -> None:
        self.waits.clear()
        self._go.clear()

    def release(self) -> None:
        self._go.set()


class Served:
    """A server of one model, a client of each protocol, and the direct call of its SavedModel."""

    def __init__(self, running: Live, folder: Path) -> None:
        self.running = running
        self._direct = tf.saved_model.load(str(folder / "m" / "1"))
        self.model = running.served
        placement = self.model._placement
        self.watched = Watched(placement.loaded)
        placement.loaded = self.watched  # before its first request
        self.drivers = [drive(running) for drive in FIT]

    def untyped(self) -> list[Driver]:
        return [each for each in self.drivers if each.name != TYPED]

    def direct(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        call = self._direct.signatures["serving_default"]
        outputs = call(**{name: tf.constant(array) for name, array in inputs.items()})
        return {name: output.numpy() for name, output in outputs.items()}

    def check(self, answer: Mapping[str, Array], inputs: Mapping[str, Array], name: str = "") -> None:
        """The answer is that of the direct call; a protocol may leave out the name of a single output."""
        expected = self.direct(inputs)
        if set(answer) == {""}:
            answer = dict(zip(expected, answer.values(), strict=True))
        assert answer.keys() == expected.keys(), name
        for output, array in expected.items():
            np.testing.assert_allclose(answer[output], array, rtol=1e-5, atol=1e-6, err_msg=f"{name}: {inputs}")

    @asynccontextmanager
    async def held(self, inputs: dict[str, Array]) -> AsyncIterator[None]:
        """A request with these inputs is computed until the block ends; all others wait."""
        self.watched.hold()
        blocking = asyncio.create_task(self.model.infer(InferenceRequest(dict(inputs))))
        try:
            assert await asyncio.to_thread(self.watched.waits.wait, HANG_S)
            self.watched.calls.clear()
            yield
        finally:
            self.watched.release()
            await blocking

    async def ask_together(
        self, asked: Sequence[tuple[Driver, dict[str, Array]]], rows: int, first: dict[str, Array] | None = None
    ) -> Sequence[Mapping[str, Array] | BaseException]:
        """The answers to requests that wait at the same time: so many rows, as they are counted.

        first: the inputs of the request that is computed meanwhile; by default as the first one.
        """
        async with self.held(first or asked[0][1]):
            answers = [asyncio.create_task(driver.ask(Question(inputs=inputs))) for driver, inputs in asked]
            # A request that is refused never waits: its answer says why.
            await until(lambda: self.running.waiting_rows() == rows or any(each.done() for each in answers))
        return await asyncio.gather(*answers, return_exceptions=True)

    async def check_together(
        self, asked: Sequence[tuple[Driver, dict[str, Array]]], rows: int, first: dict[str, Array] | None = None
    ) -> None:
        for (driver, inputs), answer in zip(asked, await self.ask_together(asked, rows, first), strict=True):
            assert not isinstance(answer, BaseException), (driver.name, answer)
            self.check(answer, inputs, driver.name)


@asynccontextmanager
async def served(folder: Path, **more: Any) -> AsyncIterator[Served]:
    async with live(folder, **{**REAL, **more}) as running:
        yield Served(running, folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    made = {}
    for name in ("temperature", "document", "towers", "graph_network", "flag"):
        made[name] = tmp_path_factory.mktemp(name)
        getattr(models, f"make_{name}")(made[name] / "m" / "1")
    return made


def hot(temperature: float, seed: int, rows: int = 1) -> dict[str, Array]:
    x = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    return {"x": x, "temperature": np.array(temperature, np.float32)}


@in_every_arrangement
def test_requests_of_every_protocol_with_equal_scalars_share_calls(folders: Mapping[str, Path], frontends: int) -> None:
    async def main() -> None:
        async with served(folders["temperature"], frontends=frontends) as server:
            # 1. All protocols at once, one scalar: full calls.
            asked = [(driver, hot(2.5, seed)) for seed, driver in enumerate(server.drivers * 4)]
            await server.check_together(asked, len(asked))
            sizes = [len(call["x"]) for call in server.watched.calls]
            assert len(sizes) == -(-len(asked) // 16), sizes

            # 2. Several scalars: as many calls as these need, and no row beside another scalar.
            values = (1.0, 2.5, -0.5)
            asked = [(driver, hot(values[n % 3], n)) for n, driver in enumerate(server.drivers * 3)]
            await server.check_together(asked, len(asked))
            expected = {
                value: {tuple(each["x"][0]) for _, each in asked if each["temperature"] == value} for value in values
            }
            for call in server.watched.calls:
                assert {tuple(row) for row in call["x"]} <= expected[float(call["temperature"])]
            assert len(server.watched.calls) == 3 * -(-len(server.drivers) // 16)

    asyncio.run(main())


def test_the_batching_page_and_statistics_tell_of_calls_that_are_shared(folders: Mapping[str, Path]) -> None:
    async def main() -> Any:
        async with served(folders["temperature"]) as server:
            await server.check_together([(server.drivers[0], hot(2.0, n)) for n in range(16)], 16)
            page = (await server.running.http.get("/v1/models/m/batching")).json()
            return page["versions"][0]["signatures"][0]

    page = asyncio.run(main())
    assert (page["batched"], page["alone"], page["most_rows"]) == (True, "", 16)
    assert (page["calls"], page["rows"]) == (2, 17)


def test_scalars_that_look_alike_are_told_apart(folders: Mapping[str, Path]) -> None:
    """Zeros of both signs divide to infinities of both signs; NaN shares with NaN, and makes no row of others NaN."""
    values = [0.0, -0.0, np.nan, 1.0] * 4

    async def main() -> None:
        async with served(folders["temperature"]) as server:
            names = ("tensorflow grpc, tensor_content", "open inference grpc, raw contents")
            for driver in [each for each in server.drivers if each.name in names]:
                asked = [(driver, hot(value, n)) for n, value in enumerate(values)]
                await server.check_together(asked, len(asked))
                assert [len(call["x"]) for call in server.watched.calls] == [4, 4, 4, 4]

    asyncio.run(main())


@in_every_arrangement
def test_queries_beside_one_document_share_calls(folders: Mapping[str, Path], frontends: int) -> None:
    rng = np.random.default_rng(7)
    documents = rng.normal(size=(2, 16)).astype(np.float32)

    async def main() -> None:
        async with served(folders["document"], frontends=frontends) as server:
            asked = []
            for n, driver in enumerate(server.drivers * 2):
                queries = rng.normal(size=(1 + n % 2, 16)).astype(np.float32)
                asked.append((driver, {"queries": queries, "document": documents[n % 2]}))
            rows = sum(len(each["queries"]) for _, each in asked)
            await server.check_together(asked, rows)
            assert len(server.watched.calls) < len(asked) / 3

    asyncio.run(main())


@in_every_arrangement
def test_two_towers_take_rows_of_their_own_and_share_calls_where_they_are_equally_many(
    folders: Mapping[str, Path], frontends: int
) -> None:
    rng = np.random.default_rng(8)

    def both(users: int, items: int) -> dict[str, Array]:
        return {
            "users": rng.normal(size=(users, 3)).astype(np.float32),
            "items": rng.normal(size=(items, 2)).astype(np.float32),
        }

    async def main() -> None:
        async with served(folders["towers"], frontends=frontends) as server:
            drivers = [each for each in server.drivers if each.name != "tensorflow rest, .npz"]
            for driver in drivers:
                for counts in ((3, 2), (1, 4), (2, 2)):
                    inputs = both(*counts)
                    server.check(await driver.ask(Question(inputs=inputs)), inputs, driver.name)
            asked = [(driver, both(1, 1)) for driver in drivers]
            await server.check_together(asked, len(asked))
            assert len(server.watched.calls) == 1

    asyncio.run(main())


@in_every_arrangement
def test_a_graph_network_computes_each_graph_by_itself(folders: Mapping[str, Path], frontends: int) -> None:
    def graph(seed: int, nodes: int, edges: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        return {
            "nodes": rng.normal(size=(nodes, 2)).astype(np.float32),
            "edges": rng.integers(0, nodes, (edges, 2), np.int32),
        }

    async def main() -> None:
        async with served(folders["graph_network"], frontends=frontends) as server:
            counts = ((3, 3), (3, 2), (1, 3), (4, 1))
            asked = [(driver, graph(n, *counts[n % 4])) for n, driver in enumerate(server.untyped() * 4)]
            await server.check_together(asked, len(asked))
            assert len(server.watched.calls) == len(asked)

    asyncio.run(main())


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_in_json_and_classes_are_those_of_the_direct_call(folders: Mapping[str, Path], rows: int) -> None:
    """As many nodes as edges may be sent row by row; classes are ranked within a row, also beside a scalar."""
    nodes = np.random.default_rng(rows).normal(size=(rows, 2)).astype(np.float32)
    graph = {"nodes": nodes, "edges": np.zeros((rows, 2), np.int32)}

    async def main() -> None:
        async with served(folders["graph_network"]) as server:
            instances = [{"nodes": n.tolist(), "edges": [0, 0]} for n in nodes]
            reply = await server.running.http.post("/v1/models/m:predict", json={"instances": instances})
            assert reply.status_code == 200, reply.text
            server.check({"y": np.array(reply.json()["predictions"], np.float32)}, graph)
            assert _best(await _classified(server, graph)) == server.direct(graph)["y"].argmax(1).tolist()
        async with served(folders["temperature"]) as server:
            inputs = hot(2.0, 5, rows=rows)
            assert _best(await _classified(server, inputs)) == server.direct(inputs)["y"].argmax(1).tolist()

    asyncio.run(main())


async def _classified(server: Served, inputs: Mapping[str, Array]) -> Any:
    """The best class of each row of `y`, over the Open Inference Protocol."""
    entries = [
        {"name": name, "shape": list(array.shape), "datatype": datatype_of(array.dtype), "data": array.ravel().tolist()}
        for name, array in inputs.items()
    ]
    wanted = [{"name": "y", "parameters": {"classification": 1}}]
    reply = await server.running.http.post("/v2/models/m/infer", json={"inputs": entries, "outputs": wanted})
    assert reply.status_code == 200, reply.text
    return reply.json()["outputs"][0]


def _best(output: Any) -> list[int]:
    """Texts are `value:class`."""
    return [int(each.split(":")[1]) for each in output["data"]]


def test_a_flag_that_makes_rows_mix_makes_none_of_strangers_mix(folders: Mapping[str, Path]) -> None:
    async def main() -> None:
        async with served(folders["flag"]) as server:
            asked = []
            for n, driver in enumerate(server.untyped() * 2):
                x = np.random.default_rng(n).normal(size=(1 + n % 3, 2)).astype(np.float32)
                asked.append((driver, {"x": x, "training": np.array(n % 2 == 0)}))
            await server.check_together(asked, len(asked))

    asyncio.run(main())


def test_a_large_request_is_computed_in_parts_with_its_own_scalar(folders: Mapping[str, Path]) -> None:
    async def main() -> None:
        async with served(folders["temperature"]) as server:
            driver = server.drivers[0]
            large, other, same = hot(3.0, 1, rows=37), hot(0.5, 2, rows=2), hot(3.0, 3, rows=3)
            await server.check_together([(driver, large), (driver, other), (driver, same)], 42, first=hot(1.0, 0))
            assert all(len(call["x"]) <= 16 for call in server.watched.calls)
            found = sorted((float(call["temperature"]), len(call["x"])) for call in server.watched.calls)
            assert found == [(0.5, 2), (3.0, 8), (3.0, 16), (3.0, 16)]

    asyncio.run(main())


def test_rows_that_fill_a_call_up_are_rows_of_the_same_scalar(folders: Mapping[str, Path]) -> None:
    async def main() -> None:
        async with served(folders["temperature"]) as server:
            asked = [(server.drivers[0], hot(2.0, n)) for n in range(5)]
            await server.check_together(asked, 5)
            (call,) = server.watched.calls
            assert (len(call["x"]), float(call["temperature"])) == (8, 2.0)

    asyncio.run(main())


@in_every_arrangement
def test_callers_that_leave_and_callers_whose_time_runs_out_change_no_answer_of_others(
    folders: Mapping[str, Path], frontends: int
) -> None:
    async def main() -> None:
        async with served(folders["temperature"], frontends=frontends) as server:
            drivers = [each for each in server.drivers if "stream" not in each.name]
            inputs = [hot((1.0, 2.0)[n % 2], n) for n in range(3 * len(drivers))]
            async with server.held(inputs[0]):
                asked = [
                    asyncio.create_task(drivers[n % len(drivers)].ask(Question(inputs=each)))
                    for n, each in enumerate(inputs)
                ]
                await server.running.rows_wait(len(inputs))
                leaving = asked[::3]
                for each in leaving:
                    each.cancel()
                await server.running.rows_wait(len(inputs) - len(leaving))
                grpc = next(each for each in drivers if each.name == "tensorflow grpc, tensor_content")
                with pytest.raises(Rejected, match="DEADLINE_EXCEEDED"):
                    await grpc.ask(Question(inputs=hot(1.0, 99), timeout_s=0.05))
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for n, answer in enumerate(answers):
                if n % 3 == 0:
                    assert isinstance(answer, asyncio.CancelledError)
                else:
                    assert not isinstance(answer, BaseException), answer
                    server.check(answer, inputs[n], drivers[n % len(drivers)].name)
            await until(lambda: server.model._placement.open_requests == 0)

    asyncio.run(main())
