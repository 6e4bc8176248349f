"""What a client may take of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on heads and on times. The settings of the same names say what each means.

    Attributes:
        max_request_line_bytes: a longer request line is rejected with 414.
        max_head_bytes: a longer head (request line and headers) is rejected with 431.
        max_headers: a head with more headers is rejected with 431.
        keep_alive_s: seconds without a byte after a reply, until the connection is closed.
        arrival_timeout_s: seconds for a head to arrive, and the grace of a body.
        min_body_bytes_per_s: a body that arrives more slowly than this, after its grace, is given up.
    """

    max_request_line_bytes: int = 8 * 1024
    max_head_bytes: int = 32 * 1024
    max_headers: int = 128
    keep_alive_s: float = 75.0
    arrival_timeout_s: float = 60.0
    min_body_bytes_per_s: int = 16 * 1024
