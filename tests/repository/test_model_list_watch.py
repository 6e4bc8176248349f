import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.core.errors import InvalidRequest, ModelNotFound, ModelNotReady
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels, watch_list
from tests.support.waiting import HANG_S

A, B = ModelConfig("a", Path("/a")), ModelConfig("b", Path("/b"))


def watch(*readings: Callable[[], Sequence[ModelConfig]], reject: Sequence[Exception] = ()) -> list[list[str]]:
    """Follows a list that started as [A]; returns the names in each reload, when all readings were taken."""
    reloads: list[list[str]] = []
    rejections = list(reject)
    waiting = list(readings)
    done = asyncio.Event()

    async def reload(configs: Sequence[ModelConfig]) -> None:
        reloads.append([config.name for config in configs])
        if rejections:
            raise rejections.pop(0)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def read() -> Sequence[ModelConfig]:
            if len(waiting) > 1:
                return waiting.pop(0)()
            loop.call_soon_threadsafe(done.set)
            return waiting[0]()

        following = asyncio.create_task(watch_list(WatchedModels([A], read, 0.001), reload))
        async with asyncio.timeout(HANG_S):
            await done.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())
    return reloads


def lists(*configs: ModelConfig) -> Callable[[], Sequence[ModelConfig]]:
    return lambda: list(configs)


def fails(error: Exception) -> Callable[[], Sequence[ModelConfig]]:
    def read() -> Sequence[ModelConfig]:
        raise error

    return read


def test_only_changes_are_put_into_effect() -> None:
    assert watch(lists(A), lists(A, B), lists(A, B), lists(), lists()) == [["a", "b"], []]


def test_what_cannot_be_read_or_is_rejected_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wrong = fails(InvalidRequest("wrong"))
    gone = fails(FileNotFoundError(2, "No such file or directory"))
    readings = [wrong, wrong, gone, lists(B), lists(B), lists(B)]
    assert watch(*readings, reject=[InvalidRequest("rejected")]) == [["b"], ["b"]]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("app.")] == [
        "The list of models is not in effect, so the models stay as they are: wrong",
        "The list of models is not in effect, so the models stay as they are: [Errno 2] No such file or directory",
        "The list of models is not in effect, so the models stay as they are: rejected",
        "The list of models changed; the models are now: b",
    ]


@pytest.mark.parametrize("error", [ModelNotReady("b failed to load"), ModelNotFound("b has no version")])
def test_a_list_of_which_a_new_model_does_not_load_is_in_effect_and_applied_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert watch(lists(A, B), lists(A, B), lists(A, B), reject=[error]) == [["a", "b"]]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("app.")] == [
        f"The list of models changed; the models are now: a, b; not all of them are served: {error}"
    ]


def test_a_bug_does_not_end_the_watch_and_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    bug, other = fails(RuntimeError("a bug")), fails(AssertionError())
    assert watch(bug, bug, other, other, lists(B), bug, lists(B)) == [["b"]]
    records = [record for record in caplog.records if "Reading the list of models failed" in record.getMessage()]
    logged = [record.exc_info and record.exc_info[0] for record in records]
    assert logged == [RuntimeError, AssertionError, RuntimeError]


@pytest.mark.parametrize(
    "models", [WatchedModels([A]), WatchedModels([A], lists(B), 0.0), WatchedModels([A], None, 1.0)]
)
def test_a_list_that_is_not_polled_is_not_followed(models: WatchedModels) -> None:
    async def reload(configs: Sequence[ModelConfig]) -> None:
        raise AssertionError

    asyncio.run(watch_list(models, reload))
