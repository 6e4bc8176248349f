"""Several batches under way on one device: real threads, and real TensorFlow."""

import asyncio
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from app.batching.batcher import Batcher
from app.batching.policy import SelfTuning
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.config.settings import Settings
from app.core.inference import Array, InferenceRequest
from app.runtimes.device_thread import DeviceThread
from app.server.server import Server
from tests.support import savedmodels
from tests.support.fakes import FakeFunction, batch_function, infer, rows_of
from tests.support.waiting import HANG_S


def test_two_calls_are_under_way_at_the_same_time_and_a_drain_waits_for_both(tmp_path: Path) -> None:
    """The first call ends only when the second, which comes later, gives it what it waits for."""
    savedmodels.make_rendezvous(tmp_path / "m" / "1")
    options = {"batches_in_flight": 2, "warm_up": False, "max_inline_ms": 0.0, "drain_timeout_s": HANG_S}
    settings = Settings(models=tmp_path, grpc_port=0, **options)

    async def main() -> None:
        server = Server(settings)
        await server.start()
        assert server._starting is not None
        await server._starting
        model = server.repository.resolve("m")
        deadline_s = time.monotonic() + HANG_S

        def ask(signature: str, value: float) -> asyncio.Task[Array]:
            async def answer() -> Array:
                request = InferenceRequest({"x": np.array([value], np.float32)}, signature, deadline_s=deadline_s)
                return (await model.infer(request)).outputs["y"]

            return asyncio.create_task(answer())

        waits = ask("wait", 1.0)
        await asyncio.sleep(0)
        gives = ask("give", 5.0)
        await asyncio.sleep(0)
        assert await server.drain()
        assert (await waits).tolist() == [6.0]
        assert (await gives).tolist() == [5.0]
        await server.stop()

    asyncio.run(main())


def test_a_stuck_batch_is_named_and_the_others_go_on() -> None:
    release = threading.Event()

    def stuck(inputs: Mapping[str, Array]) -> dict[str, Array]:
        release.wait(HANG_S)
        return {"y": inputs["x"]}

    async def main() -> None:
        now = 100.0
        threads = [DeviceThread("GPU:0", 60.0, lambda: now) for _ in range(2)]
        batcher = Batcher(threads, SelfTuning(), BatcherOptions(100), clock=lambda: now)
        waiting = asyncio.create_task(infer(batcher, LaneKey("m", 1, "f"), batch_function(stuck), rows_of(1.0), 1))
        other = batch_function(FakeFunction())
        await infer(batcher, LaneKey("m", 1, "g"), other, rows_of(2.0), 1)
        assert batcher.failures(60.0) == []
        now = 161.0
        assert batcher.failures(60.0) == ["Device GPU:0 works on one batch for 61 s"]
        await infer(batcher, LaneKey("m", 1, "g"), other, rows_of(3.0), 1)
        release.set()
        await waiting
        await batcher.drain()
        assert batcher.failures(60.0) == []
        batcher.close()

    asyncio.run(main())
