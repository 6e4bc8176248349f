import asyncio
import threading

from app.runtimes.device_thread import DeviceThread
from tests.support.waiting import HANG_S


def test_work_runs_in_order_on_one_thread_and_is_reported_on_the_loop() -> None:
    async def main() -> None:
        device = DeviceThread("CPU:0", 60.0)
        done: asyncio.Queue[tuple[int, str, str]] = asyncio.Queue()

        def work(number: int) -> tuple[int, str]:
            return number, threading.current_thread().name

        for number in range(3):
            device.start(
                lambda number=number: work(number),
                lambda result: done.put_nowait((*result, threading.current_thread().name)),
            )
        found = [await done.get() for _ in range(3)]
        assert found == [(number, "device-CPU:0", "MainThread") for number in range(3)]
        assert device.failure(0.0) == ""
        device.close()

    asyncio.run(main())


def test_when_it_was_given_work_this_has_begun() -> None:
    """Else the event loop, which has more to do, would keep the GIL from it."""

    async def main() -> None:
        device = DeviceThread("CPU:0", 60.0, begin_s=HANG_S)
        for _ in range(20):
            begun = False
            done = asyncio.get_running_loop().create_future()

            def work() -> None:
                nonlocal begun
                begun = True

            device.start(work, done.set_result)
            began_by_then = begun
            await done
            assert began_by_then
        device.close()

    asyncio.run(main())


def test_work_behind_other_work_keeps_nobody_waiting() -> None:
    async def main() -> None:
        device = DeviceThread("CPU:0", 60.0)
        release, done = threading.Event(), asyncio.get_running_loop().create_future()
        device.start(release.wait, lambda _: None)
        device.start(lambda: "second", done.set_result)
        release.set()  # it came this far
        assert await done == "second"
        device.close()

    asyncio.run(main())


def test_a_stuck_device_says_so() -> None:
    async def main() -> None:
        device = DeviceThread("CPU:0", stuck_after_s=60.0, clock=lambda: 100.0)
        release = threading.Event()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        device.start(release.wait, lambda _: done.set_result(None))
        assert device.failure(160.0) == ""
        assert device.failure(161.0) == "Device CPU:0 works on one batch for 61 s"
        release.set()
        await done
        assert device.failure(161.0) == ""
        device.close()

    asyncio.run(main())


def test_a_dead_device_says_so() -> None:
    async def main() -> None:
        device = DeviceThread("CPU:0", 60.0)
        device.close()
        device._thread.join(HANG_S)
        assert device.failure(0.0) == "The thread of device CPU:0 is dead"

    asyncio.run(main())


def test_a_result_that_comes_after_the_loop_ended_is_dropped() -> None:
    release = threading.Event()

    async def main() -> DeviceThread:
        device = DeviceThread("CPU:0", 60.0)
        device.start(release.wait, lambda _: None)
        device.close()
        return device

    device = asyncio.run(main())
    release.set()
    device._thread.join(HANG_S)
    assert not device._thread.is_alive()
