"""The access log: a line for each of a share of the requests, over HTTP and over gRPC.

It is off unless the setting access_log says otherwise. Where it is off there is no AccessLog, and a request costs one
comparison with None, too little to be measured. A line takes 15 us (docs/logs.md). Bytes that are no readable request
have no line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import random

from app.transports.request_id import shown
from app.transports.request_trace import Ended

logger = logging.getLogger("ferry.access")

#: The method of a call of gRPC, whose requests are all POST.
GRPC = "gRPC"


class AccessLog:
    """Writes the lines, of level info, whatever the level of the log: the setting access_log alone turns them off.

    Args:
        share: the share of requests that are logged, 0 to 1.
        draw: a number from 0 to below 1, at random.
    """

    def __init__(self, share: float, draw: Callable[[], float] = random) -> None:
        self._share = share
        self._draw = draw
        logger.setLevel(logging.INFO)

    @classmethod
    def of(cls, share: float) -> AccessLog | None:
        return cls(share) if share else None

    def wants(self) -> bool:
        """Whether the log gets a line of a request. To be asked once for each."""
        return self._draw() < self._share

    def write(
        self,
        ended: Ended,
        *,
        client: str,
        method: str,
        path: str,
        size: int,
        request_id: bytes,
        caller: str = "",
    ) -> None:
        """A line.

        Args:
            size: bytes of the reply's content; 0 if they are not known.
            request_id: the client's; empty for a new one.
            caller: the name of its key or token; empty if it needs none.
        """
        number, seconds = shown(request_id), ended.ended_s - ended.started_s
        model, version, _ = ended.asked
        answered = f", model {model} version {version}" if model else ""
        fields = {
            "model": model, "version": version if model else None, "request_id": number, "protocol": ended.protocol,
            "client": client, "method": method, "path": path, "status": ended.code, "bytes": size or None,
            "seconds": round(seconds, 6), "caller": caller,
        }  # fmt: skip
        logger.info(
            "%s %s %s, %s bytes, %.6f s, client %s%s%s, request %s",
            method, path, ended.code, size or "?", seconds, client or "?", f" ({caller})" if caller else "", answered,
            number, extra=fields,
        )  # fmt: skip
