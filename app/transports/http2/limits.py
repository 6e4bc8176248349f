"""Limits on a connection, and its allowance for frames that cost the server time and ask for nothing.

A client may reset calls, ping, change settings and open windows, and honest clients do so now and then. So each such
frame costs a little of an allowance, which grows with time and with each answered request. A client that makes calls
and cancels some never runs out of it; a client that only floods does within a fraction of a second. (CVE-2023-44487
rapid reset, CVE-2019-9512 ping flood, CVE-2019-9515 settings flood, CVE-2019-9517 and CVE-2025-8671 made-you-reset.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: The most that an allowance holds, and its growth in a second, in resets. Chosen: an honest client may reset as many
#: at once, when all its calls reach their deadline. A reset costs some 10 us, so the growth is worth 1 % of a core.
_MOST, _A_SECOND = 4000.0, 500.0


#: Chosen: several times the longest list by default, so that the client of one that is too long is told what is wrong.
_LEAST_BLOCK_BYTES = 2**17


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Bounds of one connection.

    Attributes:
        max_streams: requests at the same time; further ones are refused.
        max_list_bytes: bytes of the fields of a request, 32 for each included; the rest of a longer list is not kept.
        stream_window, connection_window: bytes that may come before the first of them are acknowledged.
        max_ping_strikes: pings in a row that come too soon, while nothing is sent; one more ends the connection.
        min_ping_interval_s: seconds between pings that do not.
    """

    max_streams: int = 10_000
    max_list_bytes: int = 2**14
    stream_window: int = 2**18
    connection_window: int = 2**24
    max_ping_strikes: int = 2
    min_ping_interval_s: float = 1.0

    @property
    def max_block_bytes(self) -> int:
        """The longest list as it is sent, compressed; a longer one ends the connection."""
        return max(_LEAST_BLOCK_BYTES, 2 * self.max_list_bytes)


class Allowance:
    """The time that a connection's frames may still cost for nothing.

    Attributes:
        left: is taken from for each frame that asks for nothing; below 0 the connection calls `refill`.
        earned: is added to for each answered request.
    """

    __slots__ = ("_clock", "_since_s", "earned", "left")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.left: float = _MOST
        self._since_s = clock()
        self.earned = 0.0

    def refill(self) -> bool:
        """Adds what was earned and what time gives; False if more was spent."""
        now = self._clock()
        self.left = min(_MOST, self.left + self.earned + (now - self._since_s) * _A_SECOND)
        self._since_s, self.earned = now, 0.0
        return self.left >= 0

    def __repr__(self) -> str:
        return f"<Allowance {self.left:g}, {self.earned} earned>"
