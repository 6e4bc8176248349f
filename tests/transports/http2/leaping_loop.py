"""A connection without a socket, on an event loop whose clock leaps to the next timer when all else is done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from app.transports.http2 import frames
from app.transports.http2.frames import PREFACE, SETTINGS
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Application, Http2Connections, Http2Protocol
from app.transports.http2.times import Times
from app.transports.memory.client_memory import ClientMemory


class LeapingLoop(asyncio.SelectorEventLoop):
    """`time` is 0 at first, and never waited for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        return self.now_s


class _Leaping(selectors.DefaultSelector):
    def __init__(self, loop: LeapingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self._loop.now_s += timeout
        return ready


@dataclass(frozen=True)
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


class FakeTransport:
    """A socket that takes everything, until `full`."""

    def __init__(self, alpn: str | None = None) -> None:
        self.alpn = alpn
        self.written = b""
        self.closed_s = inf
        self.aborted = False
        self.held = 0  # bytes that its peer does not read

    def get_extra_info(self, name: str) -> Any:
        return self if name == "ssl_object" and self.alpn is not None else None

    def selected_alpn_protocol(self) -> str | None:
        return self.alpn or None

    def write(self, content: bytes) -> None:
        self.written += content

    def writelines(self, parts: Any) -> None:
        self.written += b"".join(parts)

    def get_write_buffer_size(self) -> int:
        return self.held

    def close(self) -> None:
        if not self.is_closing():
            self.closed_s = asyncio.get_running_loop().time()

    def write_eof(self) -> None:
        """The client closes its side, too."""
        self.close()

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def is_closing(self) -> bool:
        return self.closed_s < inf

    def ignored(self, *_: Any) -> None:
        pass

    set_write_buffer_limits = pause_reading = resume_reading = set_protocol = ignored

    def frames(self) -> list[Frame]:
        """Those that were written since this was asked."""
        content, self.written = self.written, b""
        found = []
        while content:
            high, low, kind, flags, stream = frames.HEAD.unpack_from(content)
            end = frames.HEAD_BYTES + (high << 8 | low)
            found.append(Frame(kind, flags, stream, content[frames.HEAD_BYTES : end]))
            content = content[end:]
        return found


class Client:
    """The other end of one connection. Without an application all requests are left unanswered, in `asked`."""

    def __init__(
        self,
        loop: LeapingLoop,
        times: Times,
        limits: Http2Limits,
        memory: ClientMemory,
        application: Application | None = None,
        **more: Any,
    ) -> None:
        self.asked: list[Any] = []
        self.transport = FakeTransport(**more)
        shared = Http2Connections(
            application or self, limits=limits, times=times, memory=memory, most=10, clock=loop.time, jitter=lambda: 1.0
        )
        self.protocol = Http2Protocol(shared)
        transport: Any = self.transport
        self.protocol.connection_made(transport)

    def begin(self, _: Http2Protocol, stream: Any, *__: Any) -> None:
        self.asked.append(stream)

    def greet(self) -> None:
        self.send(PREFACE + frames.settings([]) + frames.frame(SETTINGS, frames.ACK, 0))
        self.transport.frames()

    def send(self, content: bytes) -> None:
        self.protocol.data_received(content)


def played(
    scenario: Callable[[Client], Awaitable[None]],
    memory: ClientMemory | None = None,
    alpn: str | None = None,
    application: Callable[[Callable[[], float]], Application] | None = None,
    **times: Any,
) -> None:
    """`application`: made with the clock. `times`: of Times; those that are not given are never over."""
    none = dict.fromkeys(("handshake_s", "keepalive_s", "keepalive_timeout_s", "slow_s"), inf)

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        seconds = replace(Times(), **{**none, **times})
        answering = application and application(loop.time)
        client = Client(loop, seconds, Http2Limits(), memory or ClientMemory(), answering, alpn=alpn)
        await scenario(client)
        client.protocol.connection_lost(None)

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(main())


async def until_s(moment_s: float) -> None:
    """Nothing is waited for: the clock leaps."""
    await asyncio.sleep(moment_s - asyncio.get_running_loop().time())
