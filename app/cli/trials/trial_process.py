"""The child process in which `ferry check` loads versions of models and calls them, by the server's own code.

Its parent is on the other side of its standard input, a socket: it sends a version a line, and gets lines, up to
the one of the kind DONE. The next step of a server, to make the version faster, is left out.
The process ends when its parent does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from app.batching.shapes.ragged import RaggedRows
from app.cli.trials.trial_messages import Kind, TrialVersion
from app.config.sources import load_settings
from app.core.batch_sizes import BatchSizes
from app.core.burst import Burst
from app.core.errors import InvalidRequest, ServingError
from app.core.events import Event, ModelPlaced, RowsProbed, ignore
from app.core.inference import Array, InferenceRequest, ModelSignature
from app.core.interfaces import answer_of
from app.core.values.sample_inputs import zero_inputs
from app.frontends.process_arguments import end_with
from app.instrumentation.logs import SUBSCRIPTIONS
from app.loading.loader import Loader
from app.runtimes.by_files import RuntimesByFiles
from app.server.engine import create_batcher, runtime_options

if TYPE_CHECKING:
    from app.model import Model

#: Rows of the call of each signature. Chosen: it is padded to 4, as calls of a server are.
_ROWS = 3

Say = Callable[[Kind, str], None]


def main() -> None:
    """The whole life of the child."""
    end_with(os.getppid())
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, this process is to end
    parent = socket.socket(fileno=os.dup(0))

    def say(kind: Kind, text: str) -> None:
        parent.sendall(json.dumps((kind, " ".join(text.split()))).encode() + b"\n")

    _tell_log(say)
    asyncio.run(_try_all(parent.makefile("rb"), say))


async def _try_all(lines: BinaryIO, say: Say) -> None:
    loader = await _loader(say)
    for line in lines:  # it holds up the event loop, on which nothing happens between versions
        version = TrialVersion(*json.loads(line))
        try:
            await _try(loader, version, say)
        except (ServingError, OSError) as error:
            say(Kind.FAULT, str(error))
        except Exception as error:  # the server's repository takes it as a failed load, too
            say(Kind.FAULT, f"{type(error).__name__}: {error}")
        say(Kind.DONE, "")


async def _loader(say: Say) -> Loader:
    """The loader of a server with these settings, as app/server/engine.py makes it."""
    say(Kind.STAGE, "the runtime starts")
    settings = load_settings({}).model_copy(update={"ready_when": "warm"})
    loop = asyncio.get_running_loop()
    runtime = await asyncio.to_thread(RuntimesByFiles, settings.runtime, runtime_options(settings))
    batcher = create_batcher(settings, runtime, ignore, inf, burst=Burst(loop.time), caller_weights={})
    sizes = BatchSizes.of(settings.max_batch_size, settings.batch_sizes) if settings.batching else BatchSizes((1,))
    loader = Loader(settings, sizes, runtime, batcher, tell=_log, on_loop=loop.call_soon_threadsafe)
    loader.close()  # nothing is made faster
    return loader


def _log(event: Event) -> None:
    """Logs how a version was loaded, and whether requests share calls, in the words of a server's log."""
    if isinstance(event, ModelPlaced | RowsProbed):
        SUBSCRIPTIONS[type(event)](event)


# --- a version ---


async def _try(loader: Loader, version: TrialVersion, say: Say) -> None:
    """Loads a version and calls each of its signatures. Raises the errors of a server's load."""
    say(Kind.STAGE, "the model is read")
    model = await asyncio.to_thread(loader.load, version.name, version.number or 0, Path(version.path))
    try:
        for signature in model.signatures.values():
            say(Kind.STAGE, f"signature {signature.name!r} is called")
            await _call(model, signature, say)
    finally:
        await asyncio.to_thread(model.release)


async def _call(model: Model, signature: ModelSignature, say: Say) -> None:
    """Sends one request for a signature, on the way of all requests."""
    if signature.writes:
        say(Kind.FOUND, f"signature {signature.name!r} is not called: each call of it writes state")
        return
    rows = _ROWS if signature.shares_calls else 1
    inputs = {name: array for name, array in zero_inputs(signature, rows).items() if name not in signature.masks}
    request = InferenceRequest(inputs, signature.name)
    try:
        outputs = (await answer_of(partial(model.submit, request))).outputs
    except InvalidRequest as rejection:
        say(Kind.NOTE, f"signature {signature.name!r} rejects the values that it was tried with, zeros: {rejection}")
    except ServingError as failure:
        # A shape that callers are free to choose was made up, as the values were: failing proves nothing of others.
        kind = Kind.FAULT if signature.fixed_inner_shapes else Kind.NOTE
        say(kind, f"signature {signature.name!r} failed when it was called with {_tried(inputs)}: {failure}")
    else:
        for output, misfit in _misfits(signature, outputs, rows):
            say(Kind.ROWLESS, json.dumps((signature.name, output, misfit)))
            say(
                Kind.FOUND,
                f"signature {signature.name!r}: output {misfit}: it does not follow the rows of the inputs, so each "
                "request for it is a call of its own, with the model's own answer",
            )


def _misfits(signature: ModelSignature, outputs: Mapping[str, Array], rows: int) -> Iterator[tuple[str, str]]:
    """The outputs that do not follow the rows of a signature that shares calls, and how."""
    parts = {name for splits in signature.ragged_outputs.values() for name in splits}
    for name in outputs.keys() - parts if signature.shares_calls else ():
        splits = signature.ragged_outputs.get(name, ())
        ragged = RaggedRows({name: splits} if splits else {})
        if misfit := ragged.misfit({each: outputs[each] for each in (name, *splits)}, rows):
            yield name, misfit


def _tried(inputs: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} of shape {list(array.shape)}" for name, array in inputs.items())


# --- the log ---


class _LogForwarder(logging.Handler):
    """A handler that sends the parent the lines that a server would log."""

    def __init__(self, say: Say) -> None:
        super().__init__(logging.DEBUG)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the parent is gone
            self._say(self._kind(record), record.getMessage())

    @staticmethod
    def _kind(record: logging.LogRecord) -> Kind:
        if record.name == "ferry":
            return Kind.FOUND
        return Kind.NOTE if record.levelno >= logging.WARNING else Kind.STAGE


def _tell_log(say: Say) -> None:
    forwarder = _LogForwarder(say)
    for name, level in (("ferry", logging.DEBUG), ("app", logging.INFO), ("app.loading", logging.DEBUG)):
        logging.getLogger(name).setLevel(level)
    for name in ("ferry", "app"):
        logging.getLogger(name).propagate = False
        logging.getLogger(name).addHandler(forwarder)
