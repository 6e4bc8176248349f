"""Whether the process is alive, and ready: connections answer this themselves, before anything that waits.

What balances load and restarts processes asks it, and ends a server that is late. So no application and no task is
asked: the answer is made of what the server knows at this moment. Another server of the application (uvicorn's own
connections) gets the same answers from the routes in app/protocols/operations/health.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from app.core.interfaces import ServerHealth
from app.transports.access_log import AccessLog
from app.transports.http.replies import HttpReply
from app.transports.request_trace import NOTHING_ASKED, Ended

#: They say no more than that. They need no credential, on each port.
LIVE, READY = "/livez", "/readyz"
PROBES = frozenset({LIVE, READY})

_PATHS = {each.encode(): each for each in PROBES}
_METHODS = frozenset({b"GET", b"HEAD"})

_JSON = b"application/json"


def probe_of(method: bytes, target: bytes) -> str:
    """The probe that a request is, by its path as sent; empty if it is none, or must be looked at more closely."""
    if method not in _METHODS:
        return ""
    return _PATHS.get(target) or _PATHS.get(target.partition(b"?")[0], "")


class Probes:
    """Answers them.

    Args:
        access: the log of requests; None if there is none.
    """

    def __init__(self, health: ServerHealth, access: AccessLog | None = None) -> None:
        self._health = health
        self._access = access

    def answer(self, probe: str, *, client: str, method: bytes, target: bytes, request_id: bytes) -> HttpReply:
        """The reply to a request, which is noted in the access log. `target`: as sent."""
        reply, access = self.reply(probe), self._access
        if access is not None and access.wants():
            access.write(
                Ended("http", str(reply.status), NOTHING_ASKED, 0.0, 0.0),
                client=client,
                method=method.decode(),
                path=target.partition(b"?")[0].decode("latin-1"),
                size=0 if method == b"HEAD" else len(reply.body),
                request_id=request_id,
            )
        return reply

    def reply(self, probe: str) -> HttpReply:
        health = self._health
        if probe == LIVE:
            return _verdict(health.dead())
        return _verdict([*health.dead(), *health.unready()], health.problems())


def _verdict(reasons: Sequence[str], problems: Sequence[str] = ()) -> HttpReply:
    """200, or 503 and the reasons; with what else does not work."""
    told = list(dict.fromkeys(reasons))
    document = {
        "status": "not ok" if told else "ok",
        "reasons": told,
        "problems": [each for each in dict.fromkeys(problems) if each not in told],
    }
    return HttpReply(orjson.dumps(document), 503 if told else 200, content_type=_JSON)
