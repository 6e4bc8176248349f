"""The user of this machine that a client runs as: only local clients share memory, each only its user's.

The kernel tells the user of each end of a TCP connection within the machine (proc_pid_net(5), `tcp` and `tcp6`).
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from sys import byteorder

from app.core.errors import Forbidden

#: Every user that may open the server's Unix socket.
UNIX_SOCKET = -1

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


@lru_cache(maxsize=256)
def is_local(host: str) -> bool:
    """Is this the address of a client on the loopback interface? A client of a Unix socket has none."""
    address = _address(host)
    return not host or (address is not None and address.is_loopback)


def user_of(host: str, port: int) -> int:
    """The user id of the process on this machine whose connection comes from there; blocking: the tables may be long.

    Raises:
        Forbidden: it is no client of the loopback interface.
    """
    if not host:
        return UNIX_SOCKET
    if not is_local(host):
        raise Forbidden(f"Shared memory is for clients of this machine's loopback interface; {host[:64]} is none")
    wanted = {f"{form}:{port:04X}" for form in _kernel_forms(host)}
    for table in _TABLES:
        for line in _lines(table):
            _, local, _, state, _, _, _, user, *_ = line.split()
            if local in wanted and state == _ESTABLISHED:
                return int(user)
    raise Forbidden("Shared memory is for clients of this machine; the kernel does not know the user of this one")


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _kernel_forms(host: str) -> list[str]:
    """An address as the tables write it: each 32 bits in the order of the machine. IPv4 may be within IPv6."""
    address = _address(host)
    if isinstance(address, IPv4Address):
        return [_hex(address.packed), _hex(IPv6Address(f"::ffff:{address}").packed)]
    return [_hex(address.packed)] if address else []


def _hex(packed: bytes) -> str:
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, byteorder):08X}" for word in words)


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text().splitlines()[1:]
    except OSError:
        return []
