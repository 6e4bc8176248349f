"""The audit log: who changed what is served, who was denied access, and when keys were read anew; from where, and how
it went.

Its lines have the form of all lines (app/log_lines.py) and come from the logger `ferry.audit`, whatever `log_level` is;
with a file they are also there, as JSON. What strangers can cause is bounded: of denied requests some lines a minute,
and a line that counts the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from logging.handlers import WatchedFileHandler

from app.core.events import AccessDenied, Administered, CredentialsLoaded, Subscriptions
from app.log_lines import JsonLines

logger = logging.getLogger("ferry.audit")

#: Lines of denied requests a minute. Chosen: what a person can read; 10 KB a minute.
_DENIED_PER_MINUTE = 60

#: Letters of what a request asked for, which strangers choose. Chosen.
_MOST_LETTERS = 256


class Audit:
    """Writes the lines of one process.

    Args:
        file: where they are written, too; empty for nowhere. It may be moved away: the next line makes it anew.
        clock: monotonic seconds.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, file: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minute = -1
        self._denied = 0  # in this minute
        logger.setLevel(logging.INFO)
        self._handler: logging.Handler | None = None
        if file:
            self._handler = WatchedFileHandler(file, encoding="ascii")
            self._handler.setFormatter(JsonLines())
            logger.addHandler(self._handler)
        self.subscriptions: Subscriptions = {
            AccessDenied: self._access_denied,
            Administered: self._administered,
            CredentialsLoaded: self._credentials_loaded,
        }

    def close(self) -> None:
        if self._handler is not None:
            logger.removeHandler(self._handler)
            self._handler.close()

    def _access_denied(self, event: AccessDenied) -> None:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._tell_others()
            self._minute, self._denied = minute, 0
        self._denied += 1
        if self._denied > _DENIED_PER_MINUTE:
            return
        request = event.request[:_MOST_LETTERS]
        logger.warning(
            "Denied (%s): %s, caller %s, from %s",
            event.reason, request, event.caller or "unknown", event.address or "?",
            extra=_fields(event, "request", event.reason),
        )  # fmt: skip

    def _tell_others(self) -> None:
        others = self._denied - _DENIED_PER_MINUTE
        if others > 0:
            logger.warning("Denied: %d more requests in that minute", others, extra={"action": "request"})

    def _administered(self, event: Administered) -> None:
        logger.info(
            "Administration: %s, caller %s, from %s: %s",
            event.request[:_MOST_LETTERS], event.caller or "unknown", event.address or "?", event.code,
            extra=_fields(event, "administration", event.code),
        )  # fmt: skip

    def _credentials_loaded(self, event: CredentialsLoaded) -> None:
        level = logging.INFO if event.result == "loaded" else logging.ERROR
        logger.log(
            level, "Credentials of the %s: %s: %s", event.source, event.result, event.detail,
            extra={"action": f"load {event.source}", "outcome": event.result},
        )  # fmt: skip


def _fields(event: AccessDenied | Administered, action: str, outcome: str) -> dict[str, object]:
    return {
        "protocol": event.protocol,
        "client": event.address,
        "caller": event.caller,
        "action": action,
        "path": event.request[:_MOST_LETTERS],
        "outcome": outcome,
    }
