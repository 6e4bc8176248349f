"""Metrics of the server's state at the time of the page; requests cost nothing for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from app.core.versions import ModelProblem, VersionState
from app.instrumentation import metric_definitions as definitions
from app.instrumentation.histogram import Labels
from app.instrumentation.metric_lines import Series
from app.runtime import CompiledPrograms
from app.transports.tls.served_tls import TlsState

#: The most letters of a reason as a label. Chosen: a sentence; /readyz has the whole reason.
_MOST_REASON = 300


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server for its page of metrics.

    Attributes:
        states: by model and version, the state of a version; of ended versions only those whose load failed.
        in_flight: by model and served version, the requests that wait or are computed.
        signatures: by model and served version, the names of signatures; none for pipelines.
        waiting: by model, the rows that wait, and the seconds that the oldest of their requests has waited.
        slots: by device, the calls that it takes at a time, and the calls that it could take now.
        busy_s: by device and model, seconds in which calls kept the device busy.
        device_memory: by device, the bytes in use, and the most bytes that were in use.
        connections: by transport, the open connections.
        held: bytes of the memory budget, by their use.
        kept_row_bytes: bytes of requests whose rows are to prove that they may share calls.
        dropped_lines: lines of this process's log that were not written, as nobody read them.
        tls: None without TLS.
    """

    ready: bool = False
    states: Mapping[tuple[str, int], VersionState] = field(default_factory=dict)
    problems: Sequence[ModelProblem] = ()
    in_flight: Mapping[tuple[str, int], int] = field(default_factory=dict)
    signatures: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)
    queue_rows: int = 0
    waiting: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    slots: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    busy_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    device_memory: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    kept_row_bytes: int = 0
    dropped_lines: int = 0
    programs: CompiledPrograms | None = None
    tls: TlsState | None = None


def state_metrics(state: ServerState) -> Iterator[Series]:
    """The metrics of a state. All but problems are there, as 0, before the first request."""
    yield Series(definitions.READY, {(): state.ready})
    yield from _models(state)
    yield from _queue(state)
    yield from _devices(state)
    yield Series(definitions.CONNECTIONS, {(transport,): number for transport, number in state.connections.items()})
    yield Series(definitions.MEMORY_BYTES, {(held_for,): size for held_for, size in state.held.items()})
    yield Series(definitions.KEPT_ROWS_BYTES, {(): state.kept_row_bytes})
    if state.programs is not None:
        yield Series(definitions.COMPILED_PROGRAMS, {(): state.programs.number})
        yield Series(definitions.COMPILED_PROGRAMS_LIMIT, {(): state.programs.limit})
    if state.tls is not None:
        yield from _tls(state.tls)


def _tls(state: TlsState) -> Iterator[Series]:
    yield Series(definitions.TLS_EXPIRY, {(which,): seconds for which, seconds in state.expires_s.items()})
    yield Series(definitions.TLS_RELOADS, {(result,): number for result, number in state.reloads.items()})
    yield Series(definitions.TLS_FILES_USABLE, {(): state.usable})


def _models(state: ServerState) -> Iterator[Series]:
    states: dict[Labels, float] = {
        (model, str(version), str(each)): each is now
        for (model, version), now in state.states.items()
        for each in VersionState
    }
    problems = {
        (each.model, str(each.version or 0), str(each.kind)): each.text for each in reversed(state.problems)
    }  # the first of equal labels
    in_flight: dict[Labels, float] = {
        (model, str(version)): number for (model, version), number in state.in_flight.items()
    }
    yield Series(definitions.MODEL_STATE, states)
    yield Series(definitions.MODEL_PROBLEM, {(*labels, _short(text)): 1 for labels, text in sorted(problems.items())})
    yield Series(definitions.REQUESTS_IN_FLIGHT, in_flight)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]} ..."


def _queue(state: ServerState) -> Iterator[Series]:
    waiting = {model: (0, 0.0) for model, _ in state.signatures} | dict(state.waiting)
    yield Series(definitions.QUEUE_ROWS, {(): state.queue_rows})
    yield Series(definitions.MODEL_QUEUE_ROWS, {(model,): rows for model, (rows, _) in waiting.items()})
    yield Series(definitions.MODEL_OLDEST_SECONDS, {(model,): oldest_s for model, (_, oldest_s) in waiting.items()})


def _devices(state: ServerState) -> Iterator[Series]:
    models = {model for model, _ in state.signatures}
    busy_s = {(device, model): 0.0 for device in state.slots for model in models} | dict(state.busy_s)
    yield Series(definitions.DEVICE_BUSY_SECONDS, busy_s)
    yield Series(definitions.DEVICE_SLOTS, {(device,): slots for device, (slots, _) in state.slots.items()})
    yield Series(definitions.DEVICE_FREE_SLOTS, {(device,): free for device, (_, free) in state.slots.items()})
    memory = state.device_memory.items()
    yield Series(definitions.DEVICE_MEMORY_BYTES, {(device,): used for device, (used, _) in memory})
    yield Series(definitions.DEVICE_MEMORY_PEAK_BYTES, {(device,): peak for device, (_, peak) in memory})
