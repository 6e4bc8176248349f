"""One stream of a connection: what may still come and go on it, and what waits to be sent (RFC 9113, section 5)."""

from __future__ import annotations

from collections import deque
from typing import Any

Buffer = bytes | memoryview


class Stream:
    """A stream that is open, or half closed on one side.

    Attributes:
        owner: for whoever answers: its own state of the request.
        remote_closed: the client has sent all; local_closed: all was given to `Connection` to be sent.
        send_window: bytes that the client lets us send; below 0 if it took some back.
        receive_window: bytes that the client may still send.
        content_left: bytes that are to come by content-length; -1 if it was not given.
        queue: what waits for a window, then the trailers; None while nothing waits.
        unsent: bytes of data in the queue, which is never empty.
        parked: they wait for the client to open `send_window`.
    """

    __slots__ = (
        "content_left", "ends", "id", "local_closed", "owner", "parked", "queue", "receive_window", "remote_closed",
        "send_window", "trailers", "unsent",
    )  # fmt: skip

    def __init__(self, id_: int, send_window: int, receive_window: int) -> None:
        self.id = id_
        self.owner: Any = None
        # What comes.
        self.remote_closed = False
        self.receive_window = receive_window
        self.content_left = -1
        # What goes.
        self.local_closed = False
        self.send_window = send_window
        self.queue: deque[Buffer] | None = None
        self.unsent = 0
        self.parked = False
        self.ends = False  # END_STREAM follows what is in the queue
        self.trailers: bytes | None = None  # a block that follows what is in the queue

    def __repr__(self) -> str:
        state = {
            (False, False): "open",
            (True, False): "half closed (remote)",
            (False, True): "half closed (local)",
            (True, True): "closed",
        }
        waits = f", {self.unsent} bytes wait" if self.unsent else ""
        return f"<Stream {self.id} {state[self.remote_closed, self.local_closed]}{waits}>"
