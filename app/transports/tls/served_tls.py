"""The TLS contexts of new handshakes. Their files may change while the server runs; open connections keep their
context.

Files are read again every second and compared by content. So it does not matter how they change: Kubernetes swaps a
symbolic link of a Secret's volume, cert-manager and certbot write files one after the other. A change counts once two
looks in a row read the same. Files that cannot be used change nothing: an error is logged once, and a metric shows it,
since a restart would fail.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

from app.config.settings import Settings
from app.core.events import ConnectionsRejected, Listener
from app.transports.tls.texts import TlsError, TlsNames, TlsTexts
from app.transports.tls.validity import earliest_use_s

logger = logging.getLogger(__name__)

#: Chosen: three small files are read and compared in 0.1 ms.
_LOOK_S = 1.0

#: A certificate that ends sooner is warned of at the start. Chosen: those of 90 days are renewed 30 days before.
_SOON_S = 14 * 86_400.0

#: Chosen: a line as often tells enough of handshakes that fail.
_LINE_EVERY_S = 10.0

_HANDSHAKE = "handshake"


@dataclass(slots=True)
class TlsState:
    """The state of TLS, as metrics show it.

    Attributes:
        expires_s: Unix seconds at which the certificates in use expire: `server`, and `client_ca` if there is one.
        reloads: changes of the files, by result: `loaded` or `failed`.
        usable: the files, as they are now, can be used, also by a restart.
    """

    expires_s: dict[str, float]
    reloads: dict[str, int]
    usable: bool = True


class ServedTls:
    """The contexts of new handshakes.

    Args:
        read: the texts as they are now. Raises TlsError.

    Attributes:
        state: see TlsState.
        texts: what new handshakes use.
        listener: is told of handshakes that failed.

    Raises:
        TlsError: they cannot be used.
    """

    def __init__(self, read: Callable[[], TlsTexts]) -> None:
        self._read = read
        self.texts = read()
        self._contexts: dict[tuple[tuple[str, ...], bool], ssl.SSLContext] = {}
        self._last_seen: TlsTexts | str = self.texts  # or why they could not be read
        self._judged: TlsTexts | str = self.texts
        self._failed = 0  # failed handshakes since the last log line of one
        self._next_line_s = -inf
        self.listener: Listener | None = None
        self.state = TlsState(_checked(self.texts), {"loaded": 0, "failed": 0})

    @classmethod
    def of(cls, settings: Settings) -> ServedTls | None:
        """TLS with the files that settings name; None where they name no certificate. Raises TlsError."""
        return cls(partial(read_files, settings)) if settings.tls_certificate else None

    def context(self, protocols: tuple[str, ...], *, verify: bool = True) -> ssl.SSLContext:
        """The context for the next handshake, as `TlsTexts.context` makes it."""
        context = self._contexts.get((protocols, verify))
        if context is None:
            context = self._contexts[protocols, verify] = self.texts.context(protocols, verify=verify)
        return context

    def handshake_failed(self, address: str, why: str) -> None:
        """Counts it. Strangers may fail as often as they like, so the log gets a line of some of them only."""
        if self.listener is not None:
            self.listener(ConnectionsRejected(_HANDSHAKE))
        self._failed += 1
        now_s = time.monotonic()
        if now_s >= self._next_line_s:
            logger.info("TLS: handshakes that failed since the last such line: %d; now of %s: %s",
                        self._failed, address or "a Unix socket", why)  # fmt: skip
            self._failed, self._next_line_s = 0, now_s + _LINE_EVERY_S

    async def follow(self) -> None:
        """Looks for changes until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look(await asyncio.to_thread(self._seen))

    def look(self, seen: TlsTexts | str) -> None:
        """Uses the texts, or says why they could not be read or used, once they are the same at two looks."""
        settled, self._last_seen = seen == self._last_seen, seen
        if not settled or seen == self._judged:
            return
        if seen == self.texts:  # as they were before what could not be used
            self._judged = seen
            self.state.usable = True
            return
        try:
            self._change(seen)
        except OSError as error:  # no file descriptor is free, say: the next look tries again
            logger.warning("TLS: the new files are not used yet: %s", error.strerror)
            return
        except TlsError as error:
            self.state.reloads["failed"] += 1
            self.state.usable = False
            logger.error("TLS: %s; new connections still use what was read before", error)
        self._judged = seen

    def _seen(self) -> TlsTexts | str:
        try:
            return self._read()
        except TlsError as error:
            return str(error)

    def _change(self, seen: TlsTexts | str) -> None:
        """Uses the files that were seen, from the next handshake on. Raises TlsError if they cannot be used."""
        if isinstance(seen, str):
            raise TlsError(seen)
        if bool(seen.client_ca) != bool(self.texts.client_ca):
            raise TlsError("whether clients need a certificate changes at a restart only")
        contexts = {
            used: seen.context(used[0], verify=used[1]) for used in self._contexts
        }  # no handshake may fail later
        self.state.expires_s = _checked(seen)
        self.texts, self._contexts = seen, contexts
        self.state.usable = True
        self.state.reloads["loaded"] += 1
        logger.info("TLS: new connections use the files as they are now; %s", _until(self.state.expires_s))

    def __repr__(self) -> str:
        return f"<ServedTls {self.texts!r}, {self.state}>"


def read_files(settings: Settings) -> TlsTexts:
    """The files that settings name. Raises TlsError."""
    names = TlsNames(*(_name(settings, each) for each in ("tls_certificate", "tls_key", "tls_client_ca")))
    ca = _content(settings.tls_client_ca, names.client_ca) if settings.tls_client_ca else b""
    if settings.tls_client_ca and not ca:  # which would mean that clients need no certificate
        raise TlsError(f"{names.client_ca} is empty; expected certificates in PEM (-----BEGIN CERTIFICATE-----)")
    certificate = _content(settings.tls_certificate, names.certificate)
    return TlsTexts(certificate, _content(settings.tls_key, names.key), ca, names)


def _name(settings: Settings, name: str) -> str:
    return f"{name} ({getattr(settings, name)})"


def _content(file: str, name: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise TlsError(f"{name} cannot be read: {error.strerror}") from None


def _checked(texts: TlsTexts) -> dict[str, float]:
    """When the files' certificates end; warns of those that are not valid now. Raises TlsError if they are unusable."""
    texts.context(())
    expires_s = texts.expiry()
    begins_s = earliest_use_s(texts.certificate)
    if begins_s > time.time():
        name = texts.names.certificate
        logger.warning("TLS: %s begins at %s: no client that checks it will connect before", name, _date(begins_s))
    for which, seconds in expires_s.items():
        name = texts.names.certificate if which == "server" else texts.names.client_ca
        if seconds < time.time():
            logger.warning("TLS: %s ended at %s: no client that checks it will connect", name, _date(seconds))
        elif seconds < time.time() + _SOON_S:
            logger.warning("TLS: %s ends at %s", name, _date(seconds))
    return expires_s


def _until(expires_s: dict[str, float]) -> str:
    return ", ".join(f"{which} until {_date(seconds)}" for which, seconds in expires_s.items())


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
