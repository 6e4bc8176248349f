"""While requests are rejected the event loop's thread takes no core from one that computes, and only then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from app.core.events import RequestsRefused, tell_all
from app.server.interrupt_moderation import InterruptModeration
from tests.support.fakes import fake_time, run_in_fake_time

USUAL, PATIENT, OTHERS = os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE


def set_policy(policy: int) -> None:
    os.sched_setscheduler(0, policy, os.sched_param(0))


def refuse(moderation: InterruptModeration, cause: str = "late") -> None:
    tell_all(moderation.subscriptions)(RequestsRefused(cause))


@pytest.fixture(autouse=True)
def _usual_policy() -> Iterator[None]:
    set_policy(USUAL)
    yield
    set_policy(USUAL)


def test_the_thread_has_the_batch_policy_until_no_request_was_rejected_for_a_while() -> None:
    async def main() -> None:
        interrupt_moderation = InterruptModeration(fake_time)
        assert os.sched_getscheduler(0) == USUAL
        for _ in range(3):
            refuse(interrupt_moderation)
            await asyncio.sleep(0.09)
            assert os.sched_getscheduler(0) == PATIENT
        await asyncio.sleep(0.2)
        assert os.sched_getscheduler(0) == USUAL
        refuse(interrupt_moderation)
        assert os.sched_getscheduler(0) == PATIENT

    run_in_fake_time(main())


@pytest.mark.parametrize(("cause", "policy"), [("queue_full", PATIENT), ("expired", USUAL), ("memory", USUAL)])
def test_only_refusals_because_of_too_much_to_compute_count(cause: str, policy: int) -> None:
    async def main() -> None:
        refuse(InterruptModeration(fake_time), cause)
        assert os.sched_getscheduler(0) == policy

    run_in_fake_time(main())


def test_a_policy_that_was_set_from_outside_stays() -> None:
    async def main() -> None:
        interrupt_moderation = InterruptModeration(fake_time)
        set_policy(OTHERS)
        refuse(interrupt_moderation)
        await asyncio.sleep(0.3)
        assert os.sched_getscheduler(0) == OTHERS

        set_policy(USUAL)
        interrupt_moderation = InterruptModeration(fake_time)
        refuse(interrupt_moderation)
        set_policy(OTHERS)
        await asyncio.sleep(0.3)
        assert os.sched_getscheduler(0) == OTHERS

    run_in_fake_time(main())


def test_a_sandbox_that_forbids_it_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def forbid(*_: object) -> None:
        asked.append(1)
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbid)

    async def main() -> None:
        interrupt_moderation = InterruptModeration(fake_time)
        for _ in range(3):
            refuse(interrupt_moderation)
            await asyncio.sleep(0.3)
        assert len(asked) == 1

    run_in_fake_time(main())
    monkeypatch.undo()
