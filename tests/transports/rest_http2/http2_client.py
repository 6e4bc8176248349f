"""A client of HTTP/2, by the library h2, at a connection of a World."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import h2.events

from tests.support.fakes import fake_time
from tests.transports.http1.connection_world import PREDICT, ROW, Transport, World
from tests.transports.http2.h2_client import client_connection

Header = tuple[bytes, bytes]


@dataclass
class Reply:
    """What came on one stream. `reset`: the code of RST_STREAM; None without one."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None
    interim: list[int] = field(default_factory=list)


class Client:
    """Begins with the preface, unless `preface` is false, for one that was upgraded."""

    def __init__(self, world: World, transport: Transport | None = None, *, preface: bool = True) -> None:
        self.world = world
        self.transport = transport or world.connect()[1]
        self.h2 = client_connection()
        self.replies: dict[int, Reply] = {}
        self.goaways: list[h2.events.ConnectionTerminated] = []
        self._read = 0
        if preface:
            self.h2.initiate_connection()
            self.push()

    def push(self) -> None:
        """What h2 has to send leaves; what the server answered at once is read."""
        sent = self.h2.data_to_send()
        if sent and not self.transport.closed:
            self.transport.hear(sent)
        self.read()

    def read(self) -> None:
        came = self.transport.out[self._read :]
        self._read += len(came)
        for event in self.h2.receive_data(came) if came else ():
            self._note(event)
        if came and not self.transport.closed:
            self.push()

    def _note(self, event: Any) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaways.append(event)
            return
        number = getattr(event, "stream_id", None)
        if number is None:
            return
        reply = self.replies.setdefault(number, Reply())
        if isinstance(event, h2.events.InformationalResponseReceived):
            reply.interim.append(int(dict(event.headers)[b":status"]))
        elif isinstance(event, h2.events.ResponseReceived):
            (_, status), *headers = event.headers
            reply.status = int(status)
            reply.headers = {name.decode(): value.decode("latin-1") for name, value in headers}
            assert len(reply.headers) == len(headers)
        elif isinstance(event, h2.events.DataReceived):
            reply.body += event.data
            if event.flow_controlled_length and self.h2.streams.get(number) and not self.h2.streams[number].closed:
                self.h2.acknowledge_received_data(event.flow_controlled_length, number)
        elif isinstance(event, h2.events.StreamEnded):
            reply.ended = True
        elif isinstance(event, h2.events.StreamReset) and event.remote_reset:
            reply.reset = int(event.error_code)

    # --- requests ---

    def ask(
        self,
        path: str = PREDICT,
        body: Any = ROW,
        headers: Sequence[Header] = (),
        method: str = "POST",
        *,
        sized: bool = True,
        ended: bool = True,
    ) -> int:
        """The number of its stream; its bytes have left. `sized`: with Content-Length."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        length = [(b"content-length", b"%d" % len(content))] if sized and method == "POST" else []
        head = [(b":method", method.encode()), (b":scheme", b"http"), (b":path", path.encode("latin-1"))]
        return self.send([*head, (b":authority", b"here"), *length, *headers], content, ended=ended)

    def send(self, fields: Sequence[Header], content: bytes = b"", *, ended: bool = True) -> int:
        number: int = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, list(fields), end_stream=ended and not content)
        if content:
            self.content(number, content, ended=ended)
        else:
            self.push()
        return number

    def content(self, number: int, content: bytes, *, ended: bool = True) -> None:
        for at in range(0, len(content), 16_384):
            piece = content[at : at + 16_384]
            if self.transport.closed or self.replies.get(number, Reply()).reset is not None:
                return
            self.h2.send_data(number, piece, end_stream=ended and at + len(piece) == len(content))
            self.push()

    async def upload(self, number: int, content: bytes) -> None:
        """As `content`, as fast as the window opens; the request goes on."""
        while content:
            size = min(len(content), self.h2.local_flow_control_window(number), 16_384)
            if size:
                self.content(number, content[:size], ended=False)
                content = content[size:]
            else:
                await asyncio.sleep(0.01)
                self.read()

    async def reply(self, number: int, seconds: float = 3.5) -> Reply:
        """What has come of it after that time, in which pings are answered."""
        end_s = fake_time() + seconds
        while fake_time() < end_s:
            await asyncio.sleep(min(10.0, end_s - fake_time()))
            self.read()
        return self.replies.get(number, Reply())
