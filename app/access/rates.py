"""The rates of callers: a token bucket for each, as one number (GCRA: ITU-T I.371, annex A).

The number is the second at which the bucket is full again. A request moves it on by 1 / rate; it may not lie further
ahead than `burst` requests take. So nothing runs between requests, and a forgotten full bucket is no loss.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from math import inf
from pathlib import Path
from struct import Struct
from typing import Protocol

from app.access.rules import Principal
from app.core.bounded_cache import BoundedCache
from app.core.errors import RateExceeded

#: The most buckets that are not full, in one process. Chosen: more callers than send at once; 10 MB.
_MOST = 65_536

#: The slots of shared buckets, and the slots that are tried for one caller. Chosen: 1 MB.
_SLOTS, _TRIED = 65_536, 8

_SLOT = Struct("=Qd")


class Buckets(Protocol):
    """Where the numbers are kept."""

    def full_s(self, name: str) -> float:
        """The monotonic seconds at which the bucket of a caller is full; 0 if they are not known."""

    def keep(self, name: str, full_s: float, now: float) -> None: ...


class OwnBuckets:
    """The buckets of one process."""

    def __init__(self, most: int = _MOST) -> None:
        self._full_s: dict[str, float] = {}
        self._most = most

    def full_s(self, name: str) -> float:
        return self._full_s.get(name, 0.0)

    def keep(self, name: str, full_s: float, now: float) -> None:
        """Keep a bucket; if there is no room, evict the full ones, or else the bucket that refills first."""
        if len(self._full_s) >= self._most and name not in self._full_s:
            full = [each for each, at_s in self._full_s.items() if at_s <= now]
            for each in full or [min(self._full_s, key=self._full_s.__getitem__)]:
                del self._full_s[each]
        self._full_s[name] = full_s


class SharedBuckets:
    """The buckets of several processes, in a file that all of them map; a caller is 64 bits of its name's hash.

    There is no lock: if two processes count a request within a microsecond, one count may be lost.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, _SLOTS * _SLOT.size)
            self._slots = mmap.mmap(file, _SLOTS * _SLOT.size)
        finally:
            os.close(file)
        self._hashes: BoundedCache[str, int] = BoundedCache(_MOST)

    def full_s(self, name: str) -> float:
        hashed = self._hash(name)
        for place in range(hashed, hashed + _TRIED):
            found, full_s = self._slot(place)
            if found == hashed:
                return full_s
        return 0.0

    def keep(self, name: str, full_s: float, now: float) -> None:  # noqa: ARG002 - as Buckets has it
        """Keep a bucket in its own slot, else a free one, else evict the bucket that refills first."""
        hashed = self._hash(name)
        best, best_s = hashed, inf
        for place in range(hashed, hashed + _TRIED):
            found, at_s = self._slot(place)
            if found == hashed:
                best = place
                break
            if at_s < best_s:
                best, best_s = place, at_s
        _SLOT.pack_into(self._slots, best % _SLOTS * _SLOT.size, hashed, full_s)

    def _slot(self, place: int) -> tuple[int, float]:
        found, full_s = _SLOT.unpack_from(self._slots, place % _SLOTS * _SLOT.size)
        return found, full_s

    def _hash(self, name: str) -> int:
        """The hash of a name; never 0, which marks a free slot."""
        hashed = self._hashes.get(name)
        if hashed is None:
            digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
            hashed = self._hashes.keep(name, int.from_bytes(digest) or 1)
        return hashed


class Rates:
    """The counts of requests. `buckets`: None for buckets of this process alone."""

    def __init__(self, buckets: Buckets | None = None) -> None:
        self._buckets = buckets or OwnBuckets()

    def take(self, principal: Principal, now: float) -> None:
        """Count a request at `now` (monotonic seconds). Raises RateExceeded: it was not counted."""
        name, rate = principal.name, principal.rules.rate
        if rate == inf:
            return
        empty_s = now + principal.rules.burst / rate  # when an empty bucket is full
        known_s = self._buckets.full_s(name)
        if known_s > empty_s:  # the rate was lower before, or the burst larger: no bucket is more than empty
            known_s = empty_s
            self._buckets.keep(name, empty_s, now)
        full_s = (known_s if known_s > now else now) + 1 / rate  # noqa: FURB136 - max takes 60 ns more
        wait_s = full_s - empty_s
        if wait_s > 1e-9:  # rounding
            raise RateExceeded(f"{name} sends more than its {rate:g} requests a second").retry_in(wait_s)
        self._buckets.keep(name, full_s, now)
