"""Key sets: the public keys of issuers (JWKS, RFC 7517), read from a file or by HTTPS on a thread.

A URL is read every 5 minutes, a file every 5 s. A token with an unknown key is not valid, and has a URL read sooner,
but not within 30 s of the last read: invented tokens cause no more fetches. Issuers publish a key before they use it.
A failed read is tried again after 5 s, then more rarely; the known keys stay.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from errno import ETIMEDOUT
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import jwt

#: The seconds between two reads, of a URL and of a file. Chosen: if reads succeed, a revoked key is dropped within
#: this.
_URL_S, _FILE_S = 300.0, 5.0

#: Seconds from a failed read to the next, doubled up to the usual time; and the least from a read to one that an
#: unknown key in a token causes. Chosen.
_RETRY_S, _LEAST_S = 5.0, 30.0

#: The seconds for a whole fetch; the look-up of the host name and its connects may take longer. Chosen.
_FETCH_S = 10.0

#: The most bytes of a set, and the most keys in it. Chosen: issuers have a few keys, of some KB.
_MOST_BYTES, _MOST_KEYS = 2**20, 100


class KeysUnreadable(Exception):
    """A set could not be read. The text says why, and shows nothing of the set."""


class _Key(NamedTuple):
    """A public key, and its algorithm; None if the set does not say."""

    public: Any
    algorithm: object


class KeySet:
    """The keys of one issuer.

    Args:
        source: a URL, or the path of a file.
        clock: monotonic seconds.

    Attributes:
        known: whether a set was read.
    """

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.source = source
        self.known = False
        self._clock = clock
        self._remote = not Path(source).is_absolute()
        self._content = b""
        self._keys: Mapping[object, _Key] = {}
        # When the next read is due, and when the last one was.
        self._due_s = self._looked_s = clock()
        self._failures = 0

    # --- on the event loop ---

    def find(self, kid: object, algorithm: str) -> Any:
        """The key of this name for this algorithm; None without one. Without a name, the only key of the set."""
        found: _Key | None = None
        if kid is None and len(self._keys) == 1:
            (found,) = self._keys.values()
        elif isinstance(kid, str):
            found = self._keys.get(kid)
        return found.public if found is not None and found.algorithm in {None, algorithm} else None

    def want(self) -> None:
        """Read the set soon, as a token names an unknown key."""
        if self._remote and self._failures == 0:
            self._due_s = min(self._due_s, self._looked_s + _LEAST_S)

    def is_due(self) -> bool:
        return self._clock() >= self._due_s

    def changed(self, content: bytes) -> bool:
        """Take the result of `fetch`; returns whether keys have changed. Raises KeysUnreadable: the known keys stay."""
        self._note_look()
        if content == self._content:
            self._failures = 0
            return False
        self._keys = _parse(content, self.source)
        self._content = content
        self._failures = 0
        self.known = True
        return True

    def failed(self) -> None:
        """Read the set again soon, as `fetch` or `changed` raised."""
        self._note_look()
        self._failures += 1
        usual_s = _URL_S if self._remote else _FILE_S
        self._due_s = self._looked_s + min(usual_s, _RETRY_S * 2 ** min(self._failures - 1, 10))

    def _note_look(self) -> None:
        """Note a read now, whether it succeeded or failed; the next is due after the usual time."""
        self._looked_s = self._clock()
        self._due_s = self._looked_s + (_URL_S if self._remote else _FILE_S)

    # --- on a thread ---

    def fetch(self) -> bytes:
        """The content of the set now. Raises KeysUnreadable."""
        try:
            content = self._fetch_remote() if self._remote else _read(Path(self.source))
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, HTTPError):  # a reply with an error status: its socket is still open
                error.close()
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            raise KeysUnreadable(f"{self.source}: {reason}") from None
        if len(content) > _MOST_BYTES:
            raise KeysUnreadable(f"{self.source}: more than {_MOST_BYTES} bytes")
        return content

    def _fetch_remote(self) -> bytes:
        request = urllib.request.Request(self.source, headers={"accept": "application/json"})  # noqa: S310 - see access_file.py
        pieces: list[bytes] = []
        size = 0
        with _TimeLimit(_FETCH_S) as limit:
            opener = urllib.request.build_opener(_Fetching(limit))
            with opener.open(request, timeout=_FETCH_S) as reply:
                while size <= _MOST_BYTES and (piece := reply.read1(65_536)):
                    pieces.append(piece)
                    size += len(piece)
        return b"".join(pieces)

    def __repr__(self) -> str:
        return f"<KeySet {self.source}, {len(self._keys)} keys>"


class _TimeLimit:
    """Shuts down the socket of a fetch that takes too long: its own time-out would begin anew with each byte.

    Raises:
        TimeoutError: at the end of the block, in place of the error that the shutdown of the socket caused.
    """

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._over = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def use(self, used: socket.socket) -> None:
        with self._lock:
            self._socket = used
            if self._over:
                self._end_socket()

    def _end(self) -> None:
        with self._lock:
            self._over = True
            self._end_socket()

    def _end_socket(self) -> None:
        """Shut the TCP socket down. SSLSocket.shutdown would also drop the TLS state that the fetching thread uses."""
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> _TimeLimit:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._over:
            raise TimeoutError(ETIMEDOUT, "the server takes too long") from None


class _Limited(HTTPConnection):
    """A connection that the time limit can end from its connect on: a proxy's answer to CONNECT may drip."""

    def __init__(self, limit: _TimeLimit, host: str, **more: Any) -> None:
        self._limit = limit
        super().__init__(host, **more)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "sock" and value is not None:
            self._limit.use(value)


class _LimitedTls(_Limited, HTTPSConnection):
    """The same with TLS. The socket's own time-out bounds its handshake, as a whole."""


class _Fetching(urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPRedirectHandler):
    """Opens URLs within a time limit, without redirects: keys come only from the URL in the access file."""

    def __init__(self, limit: _TimeLimit) -> None:
        super().__init__()
        self._limit = limit

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_Limited, self._limit), request)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_LimitedTls, self._limit), request, context=ssl.create_default_context())

    def redirect_request(self, *_: Any) -> None:
        return None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _parse(content: bytes, source: str) -> Mapping[object, _Key]:
    """The keys of a set, by `kid`, without private keys, shared secrets, and keys for other uses or of unknown kinds.

    Raises:
        KeysUnreadable: with the source in its text.
    """
    try:
        document = json.loads(content)
        listed: Sequence[Any] = document["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KeysUnreadable(f"{source}: no JSON Web Key Set (RFC 7517)") from None
    if not isinstance(listed, list) or len(listed) > _MOST_KEYS:
        raise KeysUnreadable(f"{source}: expected a list of at most {_MOST_KEYS} keys")
    keys: dict[object, _Key] = {}
    for each in listed:
        # A shared secret (oct), a key for another use than signatures, or a private key (d).
        if not isinstance(each, dict) or each.get("kty") == "oct" or each.get("use", "sig") != "sig" or "d" in each:
            continue
        with suppress(Exception):  # the libraries raise many types of errors for unknown keys
            keys[each.get("kid")] = _Key(jwt.PyJWK(each).key, each.get("alg"))
    if not keys:
        raise KeysUnreadable(f"{source}: no key that verifies signatures")
    return keys
