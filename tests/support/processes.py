"""The real server in a process of its own, on a free loopback port."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.forks.programs import start_program
from tests.support.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[2]

#: TMPDIR of the servers: what a killed one leaves there goes when the tests end. Unix sockets lie in it, so its path is
#: short.
_SCRATCH = tempfile.TemporaryDirectory(prefix="ferry-tests-", ignore_cleanup_errors=True)

#: A server closes a connection on which nothing came for so many seconds (uvicorn's default).
KEEP_ALIVE_S = 5.0


def _has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6) as tried:
        tried.bind(("::1", 0))
        return True
    return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="THIS MACHINE HAS NO IPv6 LOOPBACK: dual stack is not tested")


def free_port() -> int:
    """A port for a server to listen on. It stays reserved: the kernel gives it to no other socket of this machine.

    The socket that holds it never listens, which lets a server bind the port as well (SO_REUSEADDR of both), and is
    never closed.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    holder.detach()
    return port


def children(process: int) -> dict[int, str]:
    """Each child's module by its process number."""
    found = {}
    for number in map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            words = Path(f"/proc/{number}/cmdline").read_text().split("\0")
            found[number] = words[words.index("-m") + 1] if "-m" in words else ""
    return found


def has_ended(process: int) -> bool:
    """Whether all its sockets are closed; it may still be there as a zombie, which nobody has waited for.

    It is one as soon as its first thread has ended; the last one closes the sockets.
    """
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        threads = len(list(Path(f"/proc/{process}/task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX" and threads == 1


def _sockets(process: int) -> set[str]:
    """The inodes of the process's sockets."""
    found = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for file in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(os.readlink(file))
    return {each[len("socket:[") : -1] for each in found if each.startswith("socket:[")}


def _connected(port: int) -> dict[str, str]:
    """The inodes of sockets that accepted a connection to this port, with their peers as the kernel writes them."""
    rows = []
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            rows += [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return {row[9]: row[2][-13:] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}


class ServerProcess:
    """A running server: `url`, its HTTP client, and what it wrote so far. `tls`: how its clients speak it."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        port: int,
        log: Path,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{port}"
        self._tls = tls
        self.log = log
        with log.open("wb") as output:
            # No test waits for the grace, but those of it.
            variables = {**os.environ, "TMPDIR": _SCRATCH.name, "FERRY_DRAIN_GRACE_S": "0", **environment}
            self.process = start_program(list(command), variables, str(ROOT), output.fileno())
        self.port = port
        # A new connection for each request: an idle one might be closed by the server just when it is used again.
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=self.url, timeout=HANG_S, limits=limits, verify=tls or True)

    def wait_for(self, path: str, status: int) -> None:
        """Asks until the path answers with the status; a process that ended meanwhile is an error."""

        def answers() -> bool:
            self.check_alive()
            with suppress(httpx.TransportError):
                return self.client.get(path).status_code == status
            return False

        wait_until(answers, f"{path} never answered {status}; {self.log} has the server's log")

    def wait_for_frontends(self, count: int) -> None:
        """Asks on new connections until so many processes have said that they are ready."""
        ready: set[int] = set()

        def all_ready() -> bool:
            self.check_alive()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
            if self._tls is not None:
                connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=HANG_S, context=self._tls)
            with closing(connection), suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    ready.update(self.processes_behind([connection.sock.getsockname()[1]]).values())
            return len(ready) == count

        if count:
            wait_until(all_ready, "not all frontends are ready")

    def processes_behind(self, client_ports: Iterable[int]) -> dict[int, int]:
        """The children that accepted connections from these ports, by port; a connection that is closed has none."""
        wanted = {f"0100007F:{port:04X}": port for port in client_ports}
        inodes = {inode: wanted[peer] for inode, peer in _connected(self.port).items() if peer in wanted}
        return {
            inodes[inode]: number for number in children(self.process.pid) for inode in _sockets(number) & inodes.keys()
        }

    def processes_of(self, port: int) -> list[int]:
        """For each connection to this port, the child that accepted it; its state is that of both ends."""
        inodes = _connected(port).keys()
        return [number for number in children(self.process.pid) for _ in _sockets(number) & inodes]

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(f"The server ended with {self.process.returncode}:\n{self.log.read_text()}")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(HANG_S)

    def metrics(self) -> dict[str, float]:
        """Every sample of the metrics page by its name and labels, as written."""
        lines = self.client.get("/metrics").text.splitlines()
        return {
            name: float(value)
            for name, value in (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        }

    async def post_all_at_once(self, path: str, bodies: Sequence[bytes], rounds: int) -> list[list[tuple[int, bytes]]]:
        """In each round every body goes out on a connection of its own before any reply is read."""
        host, port = self.url.removeprefix("http://").split(":")
        streams = [await asyncio.open_connection(host, int(port)) for _ in bodies]
        replies = []
        for _ in range(rounds):
            for (_, writer), body in zip(streams, bodies, strict=True):
                head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
            replies.append([await _read_reply(reader) for reader, _ in streams])
        for _, writer in streams:
            writer.close()
        return replies


async def _read_reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = head.split("content-length: ")[1].split("\r\n")[0]
    return int(head.split()[1]), await reader.readexactly(int(length))


#: The number of frontends in each arrangement of processes.
ARRANGEMENTS = {"one process": 0, "frontends": 2}


@contextmanager
def serving(
    models: Path,
    log: Path,
    command: Sequence[str] = ("-m", "app", "serve"),
    ready: bool = True,
    tls: ssl.SSLContext | None = None,
    **settings: object,
) -> Iterator[ServerProcess]:
    """Serves the folder until the block ends; `ready`: from when all of it is. `settings` become FERRY_ variables.

    Models run as they are: answers are compared to the bit, and a frozen convolution's last bits depend
    on where its input lies in memory.
    """
    port = free_port()
    values = {
        "host": "127.0.0.1",
        "rest_port": port,
        "grpc_port": 0,
        "models": models,
        "execution_variant": "plain",
        "ready_when": "tuned",  # batches of every size from the first request on
        "load_budget_s": HANG_S,  # also on a slow machine
        **settings,
    }
    environment = {f"FERRY_{name.upper()}": str(value) for name, value in values.items()}
    arguments = [argument.format(port=port) for argument in command]
    server = ServerProcess([sys.executable, *arguments], environment, port, log, tls)
    try:
        if ready:
            server.wait_for("/readyz", 200)
            server.wait_for_frontends(int(str(settings.get("frontends", 0))))
        yield server
    finally:
        server.client.close()
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(HANG_S)
