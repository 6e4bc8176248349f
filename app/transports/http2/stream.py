"""One stream of a connection: what may still come and go on it, and what waits to be sent (RFC 9113, section 5)."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

Buffer = bytes | memoryview

#: Chosen: a burst of so many streams may be reset while the client still sends; in 8 KiB.
_MOST_RESET = 2048


class Stream:
    """A stream that is open, or half closed on one side.

    Attributes:
        owner: its StreamOwner; None before it has begun, and where nobody wants to hear more of it.
        remote_closed: the client has sent all; local_closed: all was given to `SansIoConnection` to be sent.
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


class ResetStreams:
    """The streams opened last that we have reset: frames that were under way for them are no error."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("I")

    def add(self, number: int) -> None:
        if not self._numbers:
            self._numbers = array("I", bytes(4 * _MOST_RESET))
        self._numbers[number // 2 % _MOST_RESET] = number

    def __contains__(self, number: int) -> bool:
        return bool(self._numbers) and self._numbers[number // 2 % _MOST_RESET] == number

    def __repr__(self) -> str:
        return f"<ResetStreams {sorted({*self._numbers} - {0})[-5:]}>"
