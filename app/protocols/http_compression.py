"""Reply bodies compressed as `Accept-Encoding` asks."""

from __future__ import annotations

import asyncio
import zlib

#: Below it the compressed body saves no packet.
MIN_BYTES = 1024

#: From here on compressing takes long enough to leave the event loop for it.
_LARGE_BYTES = 32 * 1024

#: Quick: most of the saving at a fraction of the time.
_LEVEL = 1

#: zlib's window sizes that write the header of each encoding, the preferred one first.
_WINDOWS = {"gzip": 31, "deflate": 15}


def choose_encoding(accept: bytes | None) -> str | None:
    """'gzip', 'deflate', or None for neither. Of two that are liked equally, gzip."""
    if not accept:
        return None
    quality = _qualities(accept.decode("latin-1").lower())
    best = max(_WINDOWS, key=lambda name: quality.get(name, 0.0))
    return best if quality.get(best, 0.0) > 0 else None


async def compress(body: bytes, encoding: str) -> bytes:
    """`encoding` is one that `choose_encoding` chose."""
    if len(body) < _LARGE_BYTES:
        return _compress(body, encoding)
    return await asyncio.to_thread(_compress, body, encoding)


def _compress(body: bytes, encoding: str) -> bytes:
    stream = zlib.compressobj(_LEVEL, wbits=_WINDOWS[encoding])
    return stream.compress(body) + stream.flush()


def _qualities(accept: str) -> dict[str, float]:
    qualities: dict[str, float] = {}
    for part in accept.split(","):
        name, _, parameters = part.partition(";")
        key, _, value = parameters.partition("=")
        qualities[name.strip()] = _quality(value) if key.strip() == "q" else 1.0
    return qualities


def _quality(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
