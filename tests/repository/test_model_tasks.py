"""One task for each model."""

import asyncio

import pytest

from app.repository.model_tasks import ModelTasks


class Reconciling:
    """Does nothing until it may go on."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_go_on = asyncio.Event()

    async def __call__(self, name: str) -> None:
        self.begun.append(name)
        await self.may_go_on.wait()


def test_what_is_asked_while_a_task_is_under_way_is_done_once_more_by_the_same_task() -> None:
    async def run() -> None:
        reconcile = Reconciling()
        tasks = ModelTasks(reconcile)
        first = tasks.begin("m")
        await asyncio.sleep(0)
        assert tasks.begin("m") is first
        assert tasks.begin("m") is first
        assert set(tasks.under_way) == {"m"}

        reconcile.may_go_on.set()
        await first
        assert reconcile.begun == ["m", "m"]
        assert not tasks.under_way

    asyncio.run(run())


def test_who_waits_for_one_model_waits_for_no_other() -> None:
    async def run() -> None:
        reconcile = Reconciling()
        tasks = ModelTasks(reconcile)
        slow = tasks.begin("slow")
        done = asyncio.create_task(asyncio.sleep(0))
        await tasks.finished({"quick": done, "slow": slow}, "quick")
        assert not slow.done()
        reconcile.may_go_on.set()
        await tasks.all_finished()

    asyncio.run(run())


def test_who_waits_for_all_models_waits_for_the_pipelines_that_follow_them() -> None:
    async def run() -> None:
        reconcile = Reconciling()
        tasks = ModelTasks(reconcile)
        tasks.begin_following("pipeline")
        waiting = asyncio.create_task(tasks.finished({}))
        await asyncio.sleep(0)
        assert not waiting.done()
        reconcile.may_go_on.set()
        await waiting
        assert not tasks.under_way

    asyncio.run(run())


def test_an_unexpected_error_is_logged_and_ends_no_later_task(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async def fail(name: str) -> None:
            raise RuntimeError(f"no {name}")

        tasks = ModelTasks(fail)
        await tasks.begin("m")
        assert "RuntimeError('no m'); the next poll tries again" in caplog.text
        await tasks.begin("m")
        assert not tasks.under_way

    asyncio.run(run())
