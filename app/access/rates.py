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

from app.access.rules import Principal
from app.core.bounded_cache import BoundedCache
from app.core.errors import RateExceeded

#: The slots of buckets, and the slots that are tried for one caller. Chosen: 80,000 callers who send at once forget no
#: bucket (measured); at most 4 MB, of which the system gives what is used.
_SLOTS, _TRIED = 262_144, 8

#: The names whose hashes are kept. Chosen.
_KEPT_HASHES = 65_536

_SLOT = Struct("=Qd")


class Rates:
    """The counts of requests: buckets in slots of memory, where a caller is 64 bits of its name's hash.

    Processes share the buckets in a file that all of them map. There is no lock: if two processes count a request
    within a microsecond, one count may be lost.

    Args:
        path: the file; None for buckets of this process alone.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._slots = mmap.mmap(-1, _SLOTS * _SLOT.size) if path is None else _mapped(path)
        self._hashes: BoundedCache[str, int] = BoundedCache(_KEPT_HASHES)

    def take(self, principal: Principal, now: float) -> None:
        """Count a request at `now` (monotonic seconds). Raises RateExceeded: it was not counted."""
        name, rate = principal.name, principal.rules.rate
        if rate == inf:
            return
        empty_s = now + principal.rules.burst / rate  # when an empty bucket is full
        hashed = self._hash(name)
        place, known_s = self._find(hashed)
        if known_s > empty_s:  # the rate was lower before, or the burst larger: no bucket is more than empty
            known_s = empty_s
            _SLOT.pack_into(self._slots, place, hashed, empty_s)
        full_s = (known_s if known_s > now else now) + 1 / rate  # noqa: FURB136 - max takes 60 ns more
        wait_s = full_s - empty_s
        if wait_s > 1e-9:  # rounding
            raise RateExceeded(f"{name} sends more than its {rate:g} requests a second").retry_in(wait_s)
        _SLOT.pack_into(self._slots, place, hashed, full_s)

    def _find(self, hashed: int) -> tuple[int, float]:
        """The place of a caller's slot, and the second at which its bucket is full; 0 if that is not known.

        Without a slot of its own it has a free one, or evicts the bucket that refills first.
        """
        best, best_s = 0, inf
        for number in range(hashed, hashed + _TRIED):
            place = number % _SLOTS * _SLOT.size
            found, full_s = _SLOT.unpack_from(self._slots, place)
            if found == hashed:
                return place, full_s
            if full_s < best_s:
                best, best_s = place, full_s
        return best, 0.0

    def _hash(self, name: str) -> int:
        """The hash of a name; never 0, which marks a free slot."""
        hashed = self._hashes.get(name)
        if hashed is None:
            digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
            hashed = self._hashes.keep(name, int.from_bytes(digest) or 1)
        return hashed


def _mapped(path: Path) -> mmap.mmap:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, _SLOTS * _SLOT.size)
        return mmap.mmap(file, _SLOTS * _SLOT.size)
    finally:
        os.close(file)
