"""A peer's processes: started, checked for an answer, stopped while others are measured, ended with all children."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.support.answers import Sample, WrongAnswer, ask
from bench.support.cache import ROOT

START_S = 180.0

#: Every peer gives way to the load generator, which shares its cores and must be in time.
NICENESS = 5


_PORTS = iter(random.sample(range(20_000, 30_000), 10_000))


class PeerFailed(Exception):
    """The peer does not start, died or answers wrongly; the text says which, in one line."""


class PeerProcess:
    """The tree of processes behind one command. It is a context manager: what runs at its end is killed.

    Args:
        command: with every placeholder filled in.
        variables: its environment, beside the benchmark's own.
        log: takes its standard error, and for a server its output too.
        talks: whether it is a loop in process that writes results on its standard output.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path, talks: bool) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["nice", "-n", str(NICENESS), *command],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else errors,
                stderr=errors,
                start_new_session=True,
            )
        self._talk = b""

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait_for_answer(self, port: int, path: str, sample: Sample) -> None:
        """Raises PeerFailed where no right answer comes in time."""
        give_up = time.monotonic() + START_S
        last: Exception | None = None
        while time.monotonic() < give_up:
            self.check_alive()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                ask(connection, path, sample)
                return
            except (OSError, http.client.HTTPException, WrongAnswer) as error:
                last = error
                if isinstance(error, WrongAnswer) and not error.not_yet:
                    raise PeerFailed(f"wrong answer: {error}") from error
            finally:
                connection.close()
            time.sleep(0.2)
        raise PeerFailed(f"no right answer within {START_S:.0f} s: {last}")

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            raise PeerFailed(f"ended with {self._process.returncode}: {last_line(self.log)}")

    def tell(self, document: Mapping[str, Any]) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(document).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerFailed(f"ended: {last_line(self.log)}") from error

    def hear(self, timeout_s: float) -> dict[str, Any]:
        """The next result that it writes. Raises PeerFailed."""
        assert self._process.stdout
        give_up = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._talk:
                line, _, self._talk = self._talk.partition(b"\n")
                if line.startswith(b"RESULT "):
                    result: dict[str, Any] = json.loads(line.removeprefix(b"RESULT "))
                    return result
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, give_up - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not more:
                raise PeerFailed(
                    f"said nothing within {timeout_s:.0f} s" if not ready else f"ended: {last_line(self.log)}"
                )
            self._talk += more

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def rss_mib(self) -> float:
        """Resident memory of all its processes; pages that they share count in each."""
        pages = 0
        for pid in tree(self._process.pid):
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_s(self) -> float:
        """Processor seconds of all its processes so far, in the kernel too; those of processes that ended are lost."""
        ticks = 0
        for pid in tree(self._process.pid):
            with contextlib.suppress(OSError):
                user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                ticks += int(user) + int(system)
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Asks, waits, kills; the children too, those that became orphans meanwhile among them."""
        pids = tree(self._process.pid)
        self.resume()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        for pid in pids[1:]:
            kill(pid)
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _signal(self, number: signal.Signals) -> None:
        for pid in tree(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def kill(pid: int) -> None:
    """Returns when the process has ended: its memory and its ports are free for the next."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], 10)
        finally:
            os.close(descriptor)


def free_port() -> int:
    """Another each time, below those that the system gives to connections: a peer may bind it much later."""
    for port in _PORTS:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise PeerFailed("no port is free")


def tree(root: int) -> list[int]:
    """The process and all that descend from it, the eldest first."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it wrote nothing"
