"""The audit log: administration, denied access and reads of keys, with the caller, its address and the outcome.

Its lines have the form of all lines (app/log_lines.py) and come from the logger `ferry.audit`, whatever `log_level` is;
with a file they are also there, as JSON. Strangers cause a bounded number of lines: denied requests, and rejected
administration, have some lines a minute, and a line that counts the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from logging.handlers import WatchedFileHandler

from app.core.events import AccessDenied, Administered, CredentialsLoaded, Subscriptions
from app.log_lines import JsonLines

logger = logging.getLogger("ferry.audit")

#: The most lines a minute of either kind of rejection. Chosen: a person can read them; 20 KB a minute.
_REJECTED_PER_MINUTE = 60

#: The most letters of a request, which strangers choose. Chosen.
_MOST_LETTERS = 256


class Audit:
    """The audit log of one process.

    Args:
        file: a file for the lines, too; empty for none. It may be moved away: the next line makes it anew.
        clock: monotonic seconds.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, file: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._denied = _Rejections("request", "Denied: %d more requests in that minute", clock)
        self._not_administered = _Rejections(
            "administration", "Administration: %d more requests were rejected in that minute", clock
        )
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
        self._denied.log_others()
        self._not_administered.log_others()
        if self._handler is not None:
            logger.removeHandler(self._handler)
            self._handler.close()

    def _access_denied(self, event: AccessDenied) -> None:
        if not self._denied.has_room():
            return
        request = event.request[:_MOST_LETTERS]
        logger.warning(
            "Denied (%s): %s, caller %s, from %s",
            event.reason, request, event.caller or "unknown", event.address or "?",
            extra=_fields(event, "request", event.reason),
        )  # fmt: skip

    def _administered(self, event: Administered) -> None:
        """Log an administration: each one that changed something, and some rejected ones, which strangers send."""
        if not _succeeded(event.code) and not self._not_administered.has_room():
            return
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


class _Rejections:
    """The rejections of one kind, by the minute. `others`: the line that counts rejections without a line."""

    def __init__(self, action: str, others: str, clock: Callable[[], float]) -> None:
        self._action = action
        self._others = others
        self._clock = clock
        self._minute = -1
        self._number = 0  # in this minute

    def has_room(self) -> bool:
        """Count a rejection; returns whether it has a line of its own."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self.log_others()
            self._minute = minute
        self._number += 1
        return self._number <= _REJECTED_PER_MINUTE

    def log_others(self) -> None:
        """Log the number of rejections without a line, as the minute is over or the server ends."""
        others, self._number = self._number - _REJECTED_PER_MINUTE, 0
        if others > 0:
            logger.warning(self._others, others, extra={"action": self._action})


def _succeeded(code: str) -> bool:
    """Whether a status means success. `code`: of HTTP or gRPC."""
    return code == "OK" or code.startswith("2")


def _fields(event: AccessDenied | Administered, action: str, outcome: str) -> dict[str, object]:
    return {
        "protocol": event.protocol,
        "client": event.address,
        "caller": event.caller,
        "action": action,
        "path": event.request[:_MOST_LETTERS],
        "outcome": outcome,
    }
