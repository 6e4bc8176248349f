"""Counts a small request's way through app/: calls, files, and climbs back up.

    .venv/bin/python -m docs.way_of_a_request [--hops json|grpc]

This process serves a model in numpy with all settings at their defaults, but for two: `row_independence`, so that
nothing has to be proven of rows, and `max_inline_ms`, so that a device's thread calls the model, as in the table of
docs/architecture.md, "The way of a request". One client sends a predict in JSON over HTTP/1.1 again and again, then a
Predict over gRPC. A profile function records each call from the first byte of a request until the event loop has
done what follows its reply. The shortest of these ways counts, since a longer one has met a timer or a ping.

- A call is one of a Python function in app/. Comprehensions are lines of their function: Python 3.12 calls most of them
  no more.
- A file counts once, however often the request comes back to it.
- A climb is a call from a file into one that the request reached before it: the reader turns pages back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.error import URLError
from urllib.request import urlopen

import grpc

from app import runtime
from app.codecs.protobuf.messages import message_class
from app.config.settings import Settings
from app.server.single_process import serve
from tests.support.processes import free_port

_ABOVE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_APP = f"{_ABOVE}app{os.sep}"
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")

#: Functions of these call every callback of the event loop.
_RUNS_THE_LOOP = (
    "app/server/single_process.py",
    "app/server/http_server.py",
    "app/transports/http1/uvicorn_adapter.py",
)

#: Requests of each kind. Chosen: the first ones fill caches and tables of costs; half of them would do.
_REQUESTS = 40

_BODY = b'{"instances": [[1.0, 2.0]]}'
_HTTP_REQUEST = (
    b"POST /v1/models/m:predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


@dataclass(frozen=True, slots=True)
class Hop:
    """One call: the called function and its file, the file of the nearest caller in app/ ("": the event loop)."""

    file: str
    function: str
    caller_file: str
    depth: int


@dataclass(frozen=True, slots=True)
class Way:
    """All calls of one request, in order."""

    hops: Sequence[Hop]

    @property
    def calls(self) -> int:
        return len(self.hops)

    @property
    def files(self) -> int:
        return len({hop.file for hop in self.hops})

    @property
    def climbs(self) -> int:
        reached: dict[str, int] = {}
        climbs = 0
        for hop in self.hops:
            place = reached.setdefault(hop.file, len(reached))
            climbs += place < reached.get(hop.caller_file, 0)
        return climbs


class Recorder:
    """A profile function of all threads: while `on`, it records the calls of functions in app/."""

    def __init__(self) -> None:
        self.on = False
        self.hops: list[Hop] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if not self.on or event != "call" or not code.co_filename.startswith(_APP):
            return
        if self._loop is None:
            with suppress(RuntimeError):
                self._loop = asyncio.get_running_loop()
        if code.co_name not in _COMPREHENSIONS:
            callers = list(_callers(frame))
            nearest = callers[0] if callers else ""
            self.hops.append(Hop(_name(code.co_filename), code.co_qualname, nearest, len(callers)))

    def way_of(self, request: Callable[[], object]) -> Way:
        """The way of what `request` sends; it returns when the reply is there."""
        self.hops, self.on = [], True
        request()
        self._wait_for_passes()
        self.on = False
        return Way(self.hops)

    def _wait_for_passes(self, passes: int = 3) -> None:
        """Metrics and the end of a drain follow the reply, some of them in the loop's next pass."""
        loop, passed = self._loop, threading.Event()
        assert loop is not None

        def pass_on(left: int) -> None:
            if left:
                loop.call_soon(pass_on, left - 1)
            else:
                passed.set()

        loop.call_soon_threadsafe(pass_on, passes)
        passed.wait()


def _callers(frame: FrameType) -> Iterator[str]:
    """The files of the calling functions in app/, inner ones first, without those that run the event loop."""
    caller = frame.f_back
    while caller is not None:
        code = caller.f_code
        if code.co_filename.startswith(_APP) and code.co_name not in _COMPREHENSIONS:
            file = _name(code.co_filename)
            if file not in _RUNS_THE_LOOP:
                yield file
        caller = caller.f_back


def _name(file: str) -> str:
    return file.removeprefix(_ABOVE).replace(os.sep, "/")


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder of all threads that start within, and of this one."""
    recorder, before = Recorder(), sys.getprofile()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        threading.setprofile(before)
        sys.setprofile(before)


def shortest_ways() -> Mapping[str, Way]:
    """The shortest way of each kind, "json" and "grpc". Call it on the main thread: SIGTERM ends the server."""
    ways: dict[str, Way] = {}
    with tempfile.TemporaryDirectory() as folder, recording() as recorder:
        version = Path(folder) / "m" / "1"
        version.mkdir(parents=True)
        (version / "saved_model.pb").touch()
        settings = _settings(Path(folder))
        client = threading.Thread(target=_send_all, args=(settings, recorder, ways))
        client.start()
        serve(settings)
        client.join()
    return ways


def _settings(folder: Path) -> Settings:
    runtime._REGISTRY["numpy"] = "tests.support.fakes:FakeRuntime"
    values = {"models": folder, "runtime": "numpy", "host": "127.0.0.1", "log_level": "error", "drain_grace_s": 0.0}
    return Settings(
        **values, rest_port=free_port(), grpc_port=free_port(), row_independence={"m": "assume"}, max_inline_ms=0
    )


def _send_all(settings: Settings, recorder: Recorder, ways: dict[str, Way]) -> None:
    try:
        _wait_until_ready(f"http://127.0.0.1:{settings.rest_port}/readyz")
        for kind, client in (("json", _json_client), ("grpc", _grpc_client)):
            with client(settings) as request:
                ways[kind] = min((recorder.way_of(request) for _ in range(_REQUESTS)), key=lambda way: way.calls)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _wait_until_ready(url: str) -> None:
    for _ in range(3000):
        with suppress(URLError, ConnectionError), urlopen(url) as reply:
            if reply.status == 200:
                return
        time.sleep(0.01)
    raise TimeoutError(f"{url} did not answer 200 within half a minute")


@contextmanager
def _json_client(settings: Settings) -> Iterator[Callable[[], object]]:
    with socket.create_connection(("127.0.0.1", settings.rest_port)) as connection:

        def request() -> None:
            connection.sendall(_HTTP_REQUEST)
            reply = connection.recv(1 << 16)
            assert b'"predictions"' in reply, reply

        yield request


@contextmanager
def _grpc_client(settings: Settings) -> Iterator[Callable[[], object]]:
    message = message_class("tensorflow.serving.PredictRequest")()
    message.model_spec.name = "m"
    tensor = message.inputs["x"]
    tensor.dtype, tensor.tensor_content = 1, bytes(8)
    for size in (1, 2):
        tensor.tensor_shape.dim.add(size=size)
    content = message.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{settings.grpc_port}") as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        yield lambda: call(content)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hops", choices=("json", "grpc"), help="print all calls of this way, indented by depth")
    chosen = parser.parse_args(arguments).hops
    ways = shortest_ways()
    for hop in ways[chosen].hops if chosen else ():
        print(f"{'  ' * hop.depth}{hop.file.removeprefix('app/')}  {hop.function}")
    for kind, way in ways.items():
        print(f"{kind}: {way.calls} calls, {way.files} files, {way.climbs} climbs")


if __name__ == "__main__":
    main()
