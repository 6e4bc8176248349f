"""How many file descriptors a process gives to its clients, so that models, files and children always find some left.

Without a free descriptor uvloop closes each connection that it accepts, no model loads and no child starts. So each
kind of connection has its part of the limit, and none takes another's.
"""

from __future__ import annotations

import resource

#: Descriptors that a server opens before its first client comes, and a few more. Chosen: a server had 22 with one
#: model, and each HTTP port has eight (ports.py).
_OWN = 80

#: The parts of the rest, of which 3/16 remain for models, files and children (chosen).
_HTTP, _BEYOND_HTTP, _GRPC = 1 / 2, 1 / 16, 1 / 4

#: Chosen: the memory of so many connections, 32 KiB each while a head arrives, is a few hundred MB.
_MOST_HTTP = 10_000

#: The same with TLS. Chosen: what OpenSSL may take for each (docs/architecture/threads-and-memory.md) is 0.8 GB then.
_MOST_HTTPS = 4_000

#: Connections beyond `http_connections` that wait for their rejection, or are probes (chosen).
_MOST_BEYOND_HTTP = 64

#: What the limit is raised to at most (chosen): the parts above then are 10,000 and more.
_ENOUGH = 65_536


def raise_limit() -> None:
    """Raises the limit to what the system allows; the usual 1,024 are for programs that call select(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def http_connections(*, tls: bool = False) -> int:
    return min(_MOST_HTTPS if tls else _MOST_HTTP, http_descriptors())


def http_descriptors() -> int:
    """The most HTTP connections that may be configured."""
    return _part(_HTTP)


def beyond_http_connections() -> int:
    return min(_MOST_BEYOND_HTTP, _part(_BEYOND_HTTP))


def grpc_connections() -> int:
    return _part(_GRPC)


def _part(share: float) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _ENOUGH if soft == resource.RLIM_INFINITY else soft
    return max(1, int((limit - _OWN) * share))
