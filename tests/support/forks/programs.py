"""Servers that are ready in tenths of a second: a process that has imported TensorFlow forks them.

`python -m app serve` takes 3 s of CPU until it is ready, and the import of TensorFlow takes most of that. So the first
server of a test process starts a parent, which imports it once; each server is a fork of the parent, as engines are
(app/frontends/engine/engine_forks.py). The fork runs the module as `python -m` does, with arguments, environment and
output of its own. What matters of the first moments of the real command, tests/server/test___main__.py and
tests/deploy/test_wheels.py try by starting it.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from tests.support.waiting import HANG_S

#: Servers. With frontends the fork is the supervisor.
_MODULES = {"app", "app.model_server", "tests.frontends.numpy_server", "tests.server.numpy_process"}

#: What a server imports beside TensorFlow's runtime before it serves.
_IMPORTED = ("app.cli", "app.server.single_process", "app.frontends.supervisor", "tests.every_protocol.live")

#: Variables that TensorFlow, its libraries or Python read when they are loaded: the parent has its own.
_READ_EARLY = ("TF_", "XLA_", "CUDA_", "OMP_", "KMP_", "MKL_", "LD_", "MALLOC_", "GLIBC_", "PYTHON", "GRPC_")

#: Servers whose supervisor forks its children, too (children.py). Others start them anew, as they do elsewhere.
_FORK_CHILDREN = {"app", "app.model_server"}

#: Room for the command line of a fork, in that of the parent.
_ROOM = " " * 300

_MOST_BYTES = 1 << 20


def start_program(
    command: Sequence[str], environment: Mapping[str, str], cwd: str, output: int
) -> subprocess.Popen[bytes] | ForkedProgram:
    """Starts `command`, as a fork if that makes no difference; it writes to the file `output`."""
    if command[:2] == [sys.executable, "-m"] and command[2] in _MODULES and _can_fork(environment):
        return ForkedProgram(command[1:], environment, cwd, (output, output))
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=output, stderr=output)


def run_program(
    *words: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m ...` or `python -c ...` of a program that imports TensorFlow, until it ends.

    cwd: None is the root of the repository. environment: None is that of this process.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        told = dict(os.environ if environment is None else environment)
        folder = str(cwd or Path(__file__).parents[3])
        program: subprocess.Popen[bytes] | ForkedProgram
        if _can_fork(told):
            program = ForkedProgram(words, told, folder, (output.fileno(), error.fileno()))
        else:
            command = [sys.executable, *words]
            program = subprocess.Popen(command, cwd=folder, env=told, stdout=output, stderr=error)
        try:
            code = program.wait(HANG_S)
        finally:
            program.kill()
            program.wait()
        texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (output, error)]
    return subprocess.CompletedProcess(words, code, *texts)


def _can_fork(environment: Mapping[str, str]) -> bool:
    return all(
        environment.get(name) == os.environ.get(name)
        for name in {*environment, *os.environ}
        if name.startswith(_READ_EARLY)
    )


class ForkedProgram:
    """A running fork: what tests use of subprocess.Popen."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], cwd: str, files: tuple[int, int]) -> None:
        """words: -m or -c, and what follows. files: standard output and error."""
        request = {"words": list(words), "environment": dict(environment), "cwd": cwd}
        self.pid = _ask(request, files)
        self.returncode: int | None = None
        self._lock = threading.Lock()  # tests ask from several threads
        self._file = os.pidfd_open(self.pid)  # the parent has not waited for it: the number is its own
        self._ended = select.poll()
        self._ended.register(self._file, select.POLLIN)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError if it still runs after so many seconds."""
        code = self._code(timeout)
        if code is None:
            raise TimeoutError(f"process {self.pid} still runs after {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _code(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and self._ended.poll(None if timeout is None else 1e3 * timeout):
                os.close(self._file)
                self.returncode = _ask({"wait": self.pid})
            return self.returncode


_asking = threading.Lock()


def _ask(request: Mapping[str, object], files: Sequence[int] = ()) -> int:
    with _asking:
        parent = _parent()
        socket.send_fds(parent, [json.dumps(request).encode()], files)
        return int(parent.recv(_MOST_BYTES))


@functools.cache
def _parent() -> socket.socket:
    """The socket to the parent, which ends when the socket closes."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen([sys.executable, "-m", "tests.support.forks.programs", _ROOM], stdin=its)

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _fork_programs() -> None:
    """The parent: forks a program for each request that comes by standard input."""
    from app.runtimes.tensorflow.start import preload  # noqa: PLC0415 - only the parent needs it
    from app.server.memory import spared_from_collection  # noqa: PLC0415 - likewise
    from tests.support.forks import children  # noqa: PLC0415 - likewise

    with spared_from_collection():
        preload()
        for module in (*_IMPORTED, *children.IMPORTED):
            import_module(module)
    requests = socket.socket(fileno=0)
    while True:
        text, files, *_ = socket.recv_fds(requests, _MOST_BYTES, 2)
        if not text:
            return
        request = json.loads(text)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            requests.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        if number := os.fork():
            for file in files:
                os.close(file)
            requests.send(b"%d" % number)
            continue
        requests.close()
        words = request["words"]
        children.name_process([sys.executable, *words])
        if words[1] in _FORK_CHILDREN:
            children.fork_children()
        os.open(os.devnull, os.O_RDONLY)  # standard input, whose number is free
        for number, file in enumerate(files, 1):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        children.run(words)
        return


if __name__ == "__main__":
    _fork_programs()
