"""Metrics of how the server stands when its page is asked for: nothing of it is counted while requests are served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from app.core.versions import ModelProblem, VersionState
from app.instrumentation import metric_definitions as definitions
from app.instrumentation.histogram import Labels
from app.instrumentation.metric_lines import Shown
from app.runtime import CompiledPrograms
from app.transports.tls.served_tls import TlsState

#: Of a reason, as a label. Chosen: a sentence; /readyz has all of it.
_MOST_REASON = 300


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a page shows of the server.

    Attributes:
        states: the state of each version by model and version; of ended ones only those whose load failed.
        in_flight: by model and version, of those that are served: requests that wait or are computed.
        signatures: by model and version, of those that are served, the names of their signatures; of pipelines none.
        waiting: by model, its rows that wait, and the seconds that the oldest of their requests has waited.
        slots: by device, how many calls it takes at a time, and how many more it could take now.
        busy_s: by device and model, seconds in which calls kept the device busy.
        device_memory: by device, bytes that are used, and the most that were.
        connections: by transport, those that are open.
        held: bytes of the memory budget, by what they are held for.
        kept_row_bytes: what is kept of requests whose rows are to prove that they may share calls.
        dropped_lines: of the log of this process, which nobody read.
        tls: None without it.
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


def state_metrics(state: ServerState) -> Iterator[Shown]:
    """What a server shows of itself. All but problems is there before the first request, as 0."""
    yield Shown(definitions.READY, {(): state.ready})
    yield from _models(state)
    yield from _queue(state)
    yield from _devices(state)
    yield Shown(definitions.CONNECTIONS, {(transport,): number for transport, number in state.connections.items()})
    yield Shown(definitions.MEMORY_BYTES, {(held_for,): size for held_for, size in state.held.items()})
    yield Shown(definitions.KEPT_ROWS_BYTES, {(): state.kept_row_bytes})
    if state.programs is not None:
        yield Shown(definitions.COMPILED_PROGRAMS, {(): state.programs.number})
        yield Shown(definitions.COMPILED_PROGRAMS_LIMIT, {(): state.programs.limit})
    if state.tls is not None:
        yield from _tls(state.tls)


def _tls(state: TlsState) -> Iterator[Shown]:
    yield Shown(definitions.TLS_EXPIRY, {(which,): seconds for which, seconds in state.expires_s.items()})
    yield Shown(definitions.TLS_RELOADS, {(result,): number for result, number in state.reloads.items()})
    yield Shown(definitions.TLS_FILES_USABLE, {(): state.usable})


def _models(state: ServerState) -> Iterator[Shown]:
    states: dict[Labels, float] = {
        (model, str(version), str(each)): each is now
        for (model, version), now in state.states.items()
        for each in VersionState
    }
    problems = {
        (each.model, str(each.version or 0), str(each.kind)): each.text for each in reversed(state.problems)
    }  # of each label set the first
    in_flight: dict[Labels, float] = {
        (model, str(version)): number for (model, version), number in state.in_flight.items()
    }
    yield Shown(definitions.MODEL_STATE, states)
    yield Shown(definitions.MODEL_PROBLEM, {(*labels, _short(text)): 1 for labels, text in sorted(problems.items())})
    yield Shown(definitions.REQUESTS_IN_FLIGHT, in_flight)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]} ..."


def _queue(state: ServerState) -> Iterator[Shown]:
    waiting = {model: (0, 0.0) for model, _ in state.signatures} | dict(state.waiting)
    yield Shown(definitions.QUEUE_ROWS, {(): state.queue_rows})
    yield Shown(definitions.MODEL_QUEUE_ROWS, {(model,): rows for model, (rows, _) in waiting.items()})
    yield Shown(definitions.MODEL_OLDEST_SECONDS, {(model,): oldest_s for model, (_, oldest_s) in waiting.items()})


def _devices(state: ServerState) -> Iterator[Shown]:
    models = {model for model, _ in state.signatures}
    busy_s = {(device, model): 0.0 for device in state.slots for model in models} | dict(state.busy_s)
    yield Shown(definitions.DEVICE_BUSY_SECONDS, busy_s)
    yield Shown(definitions.DEVICE_SLOTS, {(device,): slots for device, (slots, _) in state.slots.items()})
    yield Shown(definitions.DEVICE_FREE_SLOTS, {(device,): free for device, (_, free) in state.slots.items()})
    memory = state.device_memory.items()
    yield Shown(definitions.DEVICE_MEMORY_BYTES, {(device,): used for device, (used, _) in memory})
    yield Shown(definitions.DEVICE_MEMORY_PEAK_BYTES, {(device,): peak for device, (_, peak) in memory})
