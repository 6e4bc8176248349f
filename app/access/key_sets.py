"""The public keys of an issuer (JWKS, RFC 7517): from a file or by HTTPS, on a thread, kept while they cannot be had.

They are looked at every few minutes, and sooner if a token names one that is not known, but not for each such token:
whoever makes tokens up causes no more than a fetch every 30 seconds. Until new keys are there, such a token is not
valid; issuers publish a key before they use it. A fetch that fails changes nothing: the keys that are known stay.
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

#: Between two looks, of a URL and of a file. Chosen: revoked keys end within this.
_URL_S, _FILE_S = 300.0, 5.0

#: After a failure, twice as long after each, up to the usual time; and the least between two looks. Chosen.
_RETRY_S, _LEAST_S = 5.0, 30.0

#: A fetch, in all; only to find and to reach its server may take longer. Chosen.
_FETCH_S = 10.0

#: Of a set, and keys in it. Chosen: issuers have a few keys, of some KB.
_MOST_BYTES, _MOST_KEYS = 2**20, 100


class KeysUnreadable(Exception):
    """The set could not be had. The text says why, and nothing of what came."""


class _Key(NamedTuple):
    """One of a set: the public key, and the only algorithm that it is for; None if the set does not say."""

    public: Any
    algorithm: object


class KeySet:
    """The keys of one issuer.

    Args:
        source: a URL, or the path of a file.
        clock: monotonic seconds.

    Attributes:
        known: there are keys.
    """

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.source = source
        self.known = False
        self._clock = clock
        self._remote = not Path(source).is_absolute()
        self._content = b""
        self._keys: Mapping[object, _Key] = {}
        # When it is looked at next.
        self._due_s = self._looked_s = clock()
        self._failures = 0
        self._first = True

    # --- on the event loop ---

    def find(self, kid: object, algorithm: str) -> Any:
        """The key of this name that is for this algorithm; None without one. No name names the only key there is."""
        found: _Key | None = None
        if kid is None and len(self._keys) == 1:
            (found,) = self._keys.values()
        elif isinstance(kid, str):
            found = self._keys.get(kid)
        return found.public if found is not None and found.algorithm in {None, algorithm} else None

    def want(self) -> None:
        """A token names a key that is not known: look soon."""
        if self._remote and self._failures == 0:
            self._due_s = min(self._due_s, self._looked_s + _LEAST_S)

    def is_due(self) -> bool:
        return self._first or self._clock() >= self._due_s

    def changed(self, content: bytes) -> bool:
        """Takes what `fetch` returned. Are there other keys now? Raises KeysUnreadable; then the known ones stay."""
        self._note_look()
        if content == self._content:
            self._failures = 0
            return False
        self._keys = _parse(content)
        self._content = content
        self._failures = 0
        self.known = True
        return True

    def failed(self) -> None:
        """`fetch` or `changed` raised: the next look is soon."""
        self._note_look()
        self._failures += 1
        usual_s = _URL_S if self._remote else _FILE_S
        self._due_s = self._looked_s + min(usual_s, _RETRY_S * 2 ** min(self._failures - 1, 10))

    def _note_look(self) -> None:
        self._first = False
        self._looked_s = self._clock()
        self._due_s = self._looked_s + (_URL_S if self._remote else _FILE_S)

    # --- on a thread ---

    def fetch(self) -> bytes:
        """The set as it is now. Raises KeysUnreadable."""
        try:
            content = self._fetch_remote() if self._remote else _read(Path(self.source))
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, HTTPError):
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
            opener = urllib.request.build_opener(_NoRedirect, _Http(limit), _Https(limit))
            with opener.open(request, timeout=_FETCH_S) as reply:
                while size <= _MOST_BYTES and (piece := reply.read1(65_536)):
                    pieces.append(piece)
                    size += len(piece)
        return b"".join(pieces)

    def __repr__(self) -> str:
        return f"<KeySet {self.source}, {len(self._keys)} keys>"


class _TimeLimit:
    """Ends a socket when its time is over, whatever waits for it then: a socket's own time-out begins anew with a byte.

    Raises:
        TimeoutError: at the end of the block, in the place of what the end of the socket has caused.
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
        """That of TCP, also below TLS, which would have to be asked from its own thread."""
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> _TimeLimit:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._over:
            raise TimeoutError(ETIMEDOUT, "it takes too long") from None


class _Limited(HTTPConnection):
    """Tells the limit its socket as soon as it has one: a proxy's answer to CONNECT may drip, too."""

    def __init__(self, limit: _TimeLimit, host: str, **more: Any) -> None:
        self._limit = limit
        super().__init__(host, **more)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "sock" and value is not None:
            self._limit.use(value)


class _LimitedTls(_Limited, HTTPSConnection):
    """The same with TLS."""


class _Http(urllib.request.HTTPHandler):
    def __init__(self, limit: _TimeLimit) -> None:
        super().__init__()
        self._limit = limit

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_Limited, self._limit), request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, limit: _TimeLimit) -> None:
        super().__init__()
        self._limit = limit

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_LimitedTls, self._limit), request, context=ssl.create_default_context())


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from where the file says, and from nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _parse(content: bytes) -> Mapping[object, _Key]:
    """By `kid`. Keys for other purposes, of unknown kinds, private ones and shared secrets are left out.

    Raises:
        KeysUnreadable.
    """
    try:
        document = json.loads(content)
        listed: Sequence[Any] = document["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KeysUnreadable("it is no JSON Web Key Set (RFC 7517)") from None
    if not isinstance(listed, list) or len(listed) > _MOST_KEYS:
        raise KeysUnreadable(f"it is no list of at most {_MOST_KEYS} keys")
    keys: dict[object, _Key] = {}
    for each in listed:
        if not isinstance(each, dict) or each.get("kty") == "oct" or each.get("use", "sig") != "sig" or "d" in each:
            continue
        with suppress(Exception):  # whatever the libraries raise for a key that they do not know
            keys[each.get("kid")] = _Key(jwt.PyJWK(each).key, each.get("alg"))
    if not keys:
        raise KeysUnreadable("it has no key that verifies signatures")
    return keys
