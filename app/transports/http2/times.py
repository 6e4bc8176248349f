"""Times after which an HTTP/2 connection is too silent, idle, old or slow."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a connection, in seconds.

    Attributes:
        handshake_s: time for the client's preface and settings.
        keepalive_s: silence until the client is asked; keepalive_timeout_s: until it is given up without an answer.
        keepalive_without_calls: the client is asked although no request is under way.
        idle_s: time without a request until the connection ends; at most twice as long.
        age_s: age at which it ends in any case, a tenth more or less by chance, so that connections do not all end
            together; age_grace_s: time for the requests that are under way then.
        age_awaits_requests: an old connection ends, and its client is told, once no request is under way.
        slow_s: the period of looks at slow clients. While half of the memory for clients is held, a connection ends
            that takes less than `min_bytes_per_s` of its replies, and a reply of which nothing is taken is reset. A
            message that comes more slowly and a request of which nothing comes end in any case.
    """

    handshake_s: float = 20.0
    keepalive_s: float = 60.0
    keepalive_timeout_s: float = 20.0
    keepalive_without_calls: bool = True
    idle_s: float = inf
    age_s: float = inf
    age_grace_s: float = inf
    age_awaits_requests: bool = False
    slow_s: float = 60.0
    min_bytes_per_s: float = 16 * 1024
