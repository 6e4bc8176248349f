from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from app.config.settings import Settings
from app.frontends.process_arguments import COULD_NOT_START, END_WITHOUT_GRACE
from app.frontends.supervisor import END_WITHIN_S, _keep_all_running
from app.server.engine import _UNLOAD_TIMEOUT_S
from app.transports import CLOSE_TIMEOUT_S, CLOSING_S
from app.transports.closing_listener import _HANDSHAKES_S
from app.transports.grpc.server import _LAST_CALL_S
from app.transports.http1.uvicorn_adapter import _LINGER_S
from tests.support.fakes import fake_time, run_in_fake_time


def test_a_process_that_uses_all_its_time_to_end_is_not_killed() -> None:
    """Of the steps in http_server.py: gRPC's clients hear of the end, HTTP's are answered, both close, models end."""
    grpc_hears, http_listens = _HANDSHAKES_S + _LAST_CALL_S, _HANDSHAKES_S + 3 * _LINGER_S
    assert grpc_hears + http_listens + 2 * CLOSE_TIMEOUT_S + _UNLOAD_TIMEOUT_S == CLOSING_S
    assert END_WITHIN_S > CLOSING_S


class Slow:
    """A process that takes so long to end once it is told to; or cannot start."""

    def __init__(self, ends_after_s: float, code: int = 0) -> None:
        self.told: list[tuple[float, signal.Signals]] = []
        self._ends_after_s = ends_after_s
        self._code = code
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def keep_running(self) -> int:
        return self._code or await self._ended

    def end(self, how: signal.Signals) -> None:
        self.told.append((fake_time(), how))
        loop = asyncio.get_running_loop()
        loop.call_later(0.0 if how is signal.SIGKILL else self._ends_after_s, self._end, how)

    def _end(self, how: signal.Signals) -> None:
        if not self._ended.done():
            self._ended.set_result(-how if how is signal.SIGKILL else 0)


@pytest.mark.parametrize("grace_s", [0.0, 30.0])
@pytest.mark.parametrize("drain_s", [1.0, 20.0])
@pytest.mark.parametrize("late_s", [-0.5, 0.5])
def test_each_process_has_the_grace_and_the_drain_and_then_its_time_to_end(
    grace_s: float, drain_s: float, late_s: float
) -> None:
    ends_s = grace_s + drain_s + END_WITHIN_S

    async def main() -> None:
        began_s = fake_time()
        settings = Settings(drain_grace_s=grace_s, drain_timeout_s=drain_s)
        engine, frontend, other = Slow(ends_s + late_s), Slow(0.0, COULD_NOT_START), Slow(1.0)
        processes: Any = [engine, frontend, other]
        assert await _keep_all_running(processes, settings) == 1
        killed = [at_s - began_s for at_s, how in engine.told if how is signal.SIGKILL]
        assert killed == ([] if late_s < 0 else [pytest.approx(ends_s)])
        assert next(how for _, how in other.told) is END_WITHOUT_GRACE

    run_in_fake_time(main())
