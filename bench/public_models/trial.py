"""One public model, served as a user would: `ferry serve PATH`, at the first try; then asked by many at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ferry_client import Client, ServingError

from bench.public_models import ask
from bench.public_models.table import Model
from bench.support.live_server import is_ready, is_tuned

Array = np.ndarray[Any, Any]
Rows = Mapping[str, Array]

#: Callers at once.
CALLERS = 32

#: Seconds from the command until the model is ready, and until nothing makes it faster any more.
_READY_S, _TUNED_S = 300.0, 30.0

#: Seconds in which the rate is measured.
_RATE_S = 3.0


@dataclass(slots=True)
class Result:
    """What came of a model.

    outcome: "right", "said" or "wrong"; "missing" if its package could not be had.
    note: why, in one sentence; of what is right, what batches it or does not.
    alone, together: the largest difference, as a share of the largest value, to the reference.
    """

    name: str
    outcome: str
    note: str = ""
    alone: float = 0.0
    together: float = 0.0
    batched: bool | None = None
    rows_per_call: float = 0.0
    ready_s: float = 0.0
    rate: float = 0.0
    direct_rate: float = 0.0
    direct_rows: int = 1
    alike: bool = False


class Failed(RuntimeError):
    """The server ended, or its model did not come up; the text is what it said."""


@contextmanager
def served(path: Path, log: Path) -> Iterator[int]:
    """The port of a server that has just been started with this path, in a cache of its own.

    Raises:
        Failed: it ended.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    cache = tempfile.mkdtemp(prefix="ferry-public-")
    command = [str(Path(sys.executable).with_name("ferry")), "serve", str(path)]
    options = ["--rest-port", str(port), "--grpc-port", "0", "--log-level", "warning"]
    environment = {**os.environ, "XDG_CACHE_HOME": cache, "TF_CPP_MIN_LOG_LEVEL": "2"}
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *options], cwd=cache, env=environment, stdout=out, stderr=out)
    try:
        _wait_until_ready(process, port, log)
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(cache, ignore_errors=True)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < give_up:
        if is_ready(port):  # each model is loaded, or has failed to load
            with Client(f"http://127.0.0.1:{port}", timeout_s=10.0) as client:
                failed = [model.reason for model in client.models() if not model.ready]
            if failed:
                raise Failed(failed[0])
            return
        time.sleep(0.1)
    raise Failed(last_words(log.read_text(errors="replace")) or f"not ready in {_READY_S:.0f} s")


#: A page, a command or an option: an error without one says nothing that could be done.
_WHAT_TO_DO = re.compile(r"docs/\S+\.md|pip install|--\w+")


def last_words(log: str) -> str:
    """The last line that the server wrote, without what TensorFlow writes."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not re.match(r"[IWE]\d{4} |\d{4}-", line)]
    return lines[-1] if lines else ""


def try_model(model: Model, folder: Path, *, measured: bool) -> Result:
    """Serves a source, which lies in `folder` with its reference, and compares; the rate only if it is asked for."""
    begun = time.monotonic()
    source, log = folder / f"{model.name}{model.suffix}", folder / f"{model.name}.log"
    try:
        with served(source, log) as port:
            result = Result(model.name, "right", ready_s=time.monotonic() - begun)
            _ask(model, folder, port, result, measured=measured)
            return result
    except (Failed, ServingError, ask.Differs) as error:
        text = " ".join(str(error).split())
        said = isinstance(error, Failed) and model.says and _WHAT_TO_DO.search(text) is not None
        return Result(model.name, "said" if said else "wrong", text, ready_s=time.monotonic() - begun)


def _ask(model: Model, folder: Path, port: int, result: Result, *, measured: bool) -> None:
    """Raises ask.Differs, ServingError."""
    if not (folder / f"{model.name}.npz").is_file():
        raise ask.Differs("there is no reference to compare with")
    inputs, outputs = ask.read_reference(folder / f"{model.name}.npz")
    direct = json.loads((folder / f"{model.name}.json").read_text())
    result.direct_rate, result.direct_rows = direct["rate"], direct["rows"]
    result.alike = ask.alike(outputs)
    with Client(f"http://127.0.0.1:{port}", timeout_s=60.0) as client:
        (name,) = {each.name for each in client.models()}
        question = ask.Question(client, name, inputs, outputs, whole=model.whole)
        result.alone = max(question.ask(n) for n in range(8))
        _ask_together(question, result)
        if measured:
            _wait_until_tuned(port)
            result.rate = question.rate(f"http://127.0.0.1:{port}", CALLERS, _RATE_S)
            _ask_together(question, result)
    _batching(port, name, result)


def _ask_together(question: ask.Question, result: Result) -> None:
    with ThreadPoolExecutor(CALLERS) as callers:
        for _ in range(3):
            result.together = max(result.together, *callers.map(question.ask, range(question.count)))


def _wait_until_tuned(port: int) -> None:
    give_up = time.monotonic() + _TUNED_S
    while time.monotonic() < give_up and not is_tuned(port):
        time.sleep(0.2)


def _batching(port: int, name: str, result: Result) -> None:
    page = ask.page(port, f"/v1/models/{name}/batching")
    (version,) = page["versions"]
    signature = next(each for each in version["signatures"] if each["calls"])
    result.batched = bool(signature["batched"]) and signature["most_rows"] > 1
    result.rows_per_call = signature["rows_per_call"]
    result.note = signature["alone"] or ("" if result.batched else "no batch was faster")
