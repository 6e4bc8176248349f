"""Ends the connection of a gRPC client that does not read its reply, where others need the memory.

gRPC does not tell how much of a reply was sent, and ends no call that it has the reply of. But the sockets are of this
process: the kernel says how much of what was sent has arrived, and a socket that is shut down ends its connection, with
all its calls. Behind a proxy these may be of others, so this is done only while half of the memory is held.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from ipaddress import IPv6Address, ip_address

from app.transports.grpc.own_sockets import own_sockets
from app.transports.local_clients import host_and_port
from app.transports.memory.client_memory import ClientMemory

logger = logging.getLogger(__name__)

# linux/tcp.h, struct tcp_info: tcpi_bytes_acked
_ACKNOWLEDGED = struct.Struct("=120xQ")


class SlowReaders:
    """Ends the connections of clients that read a reply more slowly than at a least rate.

    Args:
        time_s: seconds between two looks at a connection.
        min_bytes_per_s: a connection that took less than this between two looks is shut down.
    """

    def __init__(self, memory: ClientMemory, time_s: float, min_bytes_per_s: float) -> None:
        self._memory = memory
        self.time_s = time_s
        self.min_bytes_per_s = min_bytes_per_s

    def watch(self, peer: str) -> Watch:
        """From now on until it is cancelled. `peer` is gRPC's name of the client, such as ipv4:127.0.0.1:5000."""
        return Watch(self._memory, peer, self.time_s, self.time_s * self.min_bytes_per_s)


class Watch:
    """Watches the connection of one client while one reply waits for it."""

    def __init__(self, memory: ClientMemory, peer: str, time_s: float, least: float) -> None:
        self._memory = memory
        self._peer = peer
        self._time_s = time_s
        self._least = least
        self._socket: socket.socket | None = None
        self._taken = 0
        self._look_later()

    def cancel(self) -> None:
        self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._time_s, self._look)

    def _look(self) -> None:
        # 1. The first look only finds the connection: few replies wait for this long.
        if self._socket is None:
            self._socket = _socket_to(self._peer)
            if self._socket is None:
                return
            self._taken = _taken(self._socket)

        # 2. A later one compares.
        elif (taken := _taken(self._socket)) - self._taken >= self._least:
            self._taken = taken
        elif self._memory.half_held:
            logger.info("The gRPC client %s reads too little of its reply; its connection ends", self._peer)
            _shut_down(self._socket)
            return
        self._look_later()


def _shut_down(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has ended
        return


def _taken(connected: socket.socket) -> int:
    """Bytes that the client's kernel has taken since the beginning."""
    return int(_ACKNOWLEDGED.unpack(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size))[0])


def _socket_to(peer: str) -> socket.socket | None:
    """A second descriptor of this process's connection to that peer; None if there is none, or by a Unix socket."""
    host, port = host_and_port(peer)
    wanted = (_plain(host), port) if host else None
    return next((each.dup() for each in own_sockets() if wanted and _peer_of(each) == wanted), None)


def _peer_of(connected: socket.socket) -> tuple[str, int] | None:
    try:
        host, port, *_ = connected.getpeername()
    except (OSError, ValueError):  # not connected; a Unix socket
        return None
    return _plain(host), port


def _plain(host: str) -> str:
    """An IPv4 address that a socket for both families tells as ::ffff:127.0.0.1, as IPv4."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
