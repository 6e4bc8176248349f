"""Is the simulator right? A real server beside it: same arrivals, deadline and policy, and measured costs.

Behind `python -m bench.simulate --real`. The simulator knows only the model's calls, not HTTP, JSON, the
event loop, or other processes on the core. Some of that happens during calls and makes them longer, each by another
share; the rest happens between calls. So costs are measured:

- each batch size alone, in this process on the server's cores, gives the form of the curve;
- how many times as long each call took under this load, read from the replies, gives its level and variation;
- the time between calls, for each row, comes from another run: the flood before each round, in which the server is
  never idle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from app.batching.policy import SelfTuning
from app.bench.open_loop import LoadTarget, OpenLoopResult, arrivals, open_loop, run_precisely
from app.core.batch_sizes import BatchSizes
from bench.models import read_samples, saved_model
from bench.simulator.called import Call, Called
from bench.simulator.simulation import Arrival, CallCosts, MeasuredCosts, Outcome, simulate
from bench.support.cores import for_server_and_load, on_cores
from bench.support.heavy_server import INPUT, MANY_CONNECTIONS, MODEL, VARIANTS, HeavyRequests, heavy_server

#: Of what the server answers where it is asked for much more.
LOADS = (0.7, 1.5)

#: By how much the answers per second may differ.
MOST_PERCENT = 15.0

_SIGNATURE = "serving_default"
_SIZES = BatchSizes.powers_of_two(64)
_DEADLINE_S = 0.4

#: A server that answers less than this share of what it is asked for does all it can.
_FLOOD_S, _SATURATED = 2.0, 0.8

#: How often all sizes are called in turn (the first time is not counted), and how often the smallest each time.
_PASSES, _MOST_CALLS = 8, 8


@dataclass(frozen=True, slots=True)
class Played:
    """What a server did with a load, and for how long in all."""

    load: OpenLoopResult
    calls: Sequence[Call]
    seconds: float

    @property
    def around_row_s(self) -> float:
        """Of a server that had always something to do: what it did between calls, for each row."""
        between_s = self.seconds - sum(call.seconds for call in self.calls)
        return max(0.0, between_s) / sum(call.rows for call in self.calls)


@dataclass(frozen=True, slots=True)
class Pair:
    """One load, real and simulated, and the costs of the latter."""

    load: float
    real: OpenLoopResult
    real_batch: float
    simulated: Outcome
    costs: MeasuredCosts

    @property
    def answered(self) -> tuple[float, float]:
        """Answers in time per second, real and simulated."""
        return self.real.answered_rate, self.simulated.in_time / self.real.seconds

    @property
    def ratio(self) -> float:
        real, simulated = self.answered
        return real / simulated


def compare(rounds: int, seconds: float) -> list[Pair]:
    """All loads in turn, in each round."""
    server_cores, _ = for_server_and_load()
    with heavy_server() as (port, _):
        with on_cores(server_cores):
            alone = curve_alone(call_in_process())
        pairs, rate = [], _SIZES.largest / alone[_SIZES.largest]
        for number in range(rounds):
            flood = flooded(port, rate)
            rate = flood.load.answered_rate
            for load in LOADS:
                real = play(port, load * rate, seconds, seed=number)
                costs = costs_of(real.calls, alone, flood.around_row_s, seed=number)
                simulated = simulated_like(real.load, costs, seed=number)
                mean_rows = sum(call.rows for call in real.calls) / len(real.calls)
                pairs.append(Pair(load, real.load, mean_rows, simulated, costs))
        return pairs


def flooded(port: int, rate: float) -> Played:
    """The first run in which more is asked for than is answered, beginning with twice the rate; the server learns
    what calls cost."""
    while True:
        rate *= 2
        flood = play(port, rate, _FLOOD_S, seed=0)
        if flood.load.answered_rate < _SATURATED * rate:
            return flood


def play(port: int, rate: float, seconds: float, seed: int) -> Played:
    requests, called, begin_s = HeavyRequests(_DEADLINE_S), Called(), time.perf_counter()
    target = LoadTarget("127.0.0.1", port, MANY_CONNECTIONS)
    load = run_precisely(
        open_loop(target, requests.bytes, rate, seconds, seed=seed, check=requests.check, heard=called.hear)
    )
    return Played(load, called.calls(), time.perf_counter() - begin_s)


def costs_of(calls: Sequence[Call], alone: Mapping[int, float], around_row_s: float, seed: int) -> MeasuredCosts:
    """That calls take as much longer than alone as these did."""
    alone_s = [alone[_SIZES.padded(call.rows)] for call in calls]
    times = [call.seconds / each_s for call, each_s in zip(calls, alone_s, strict=True)]
    return MeasuredCosts(alone, times, alone_s, around_row_s, np.random.default_rng(seed))


def simulated_like(real: OpenLoopResult, costs: CallCosts, seed: int) -> Outcome:
    """The same arrivals."""
    at_s = [Arrival(time_s) for time_s in arrivals(real.rate, real.seconds, seed)]
    return simulate(at_s, SelfTuning(), costs=costs, deadline_s=_DEADLINE_S, admission=True, sizes=_SIZES)


def call_in_process() -> Callable[[int], object]:
    """A call with this many rows by Ferry's runtime, with the execution variants that the server chose."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from app.core.time_budget import TimeBudget  # noqa: PLC0415 - as above
    from app.loading.warm_up import tune  # noqa: PLC0415 - as above
    from app.runtime import RuntimeOptions, VariantOptions, create_runtime  # noqa: PLC0415 - after the setting above

    runtime = create_runtime("tensorflow", RuntimeOptions(variants=VariantOptions("auto", cache=VARIANTS)))
    model = runtime.load(saved_model(MODEL))
    tune(model, _SIZES.allowed, lambda *_: None, TimeBudget(20.0))
    row = read_samples(MODEL)[0][0]
    batches = {size: np.stack([row] * size) for size in _SIZES.allowed}
    return lambda size: model.run(_SIGNATURE, {INPUT: batches[size]}, ())


def curve_alone(call: Callable[[int], object], passes: int = _PASSES) -> dict[int, float]:
    """Seconds of a call at each size. The machine's speed drifts, so the form is the median of the passes' forms."""
    seconds = np.array([[_timed(call, size) for size in _SIZES.allowed] for _ in range(passes + 1)][1:])
    of_pass = seconds.sum(axis=1, keepdims=True)
    form = np.median(seconds / of_pass, axis=0)
    return dict(zip(_SIZES.allowed, (form * np.median(of_pass)).tolist(), strict=True))


def _timed(call: Callable[[int], object], size: int) -> float:
    """The median of a few, more of the short ones."""
    taken = []
    for _ in range(max(1, _MOST_CALLS // size)):
        begin_s = time.perf_counter()
        call(size)
        taken.append(time.perf_counter() - begin_s)
    return median(taken)


def differences(pairs: Sequence[Pair]) -> list[float]:
    """By load: how far the median ratio of its rounds is from 1, in percent."""
    return [100 * abs(median(pair.ratio for pair in pairs if pair.load == load) - 1) for load in LOADS]


def report(pairs: Sequence[Pair]) -> Iterator[str]:
    yield (
        f"A real server of the {MODEL} beside the simulator; Poisson arrivals, deadline {1e3 * _DEADLINE_S:g} ms. "
        "Both had the same arrivals and policy, and calls cost what they did in that run."
    )
    yield ""
    yield (
        "| load | per s | answers/s: real | simulated | ratio | rows a call | p99 ms |"
        " a call took, times alone (varies by) | around a row, ms |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for each in pairs:
        real, simulated = each.answered
        yield (
            f"| {each.load:g} | {each.real.rate:.0f} | {real:.0f} | {simulated:.0f} | {each.ratio:.3f} |"
            f" {each.real_batch:.1f}, {each.simulated.mean_batch:.1f} |"
            f" {1e3 * percentile_of_answers(each.real):.0f}, {1e3 * each.simulated.p99_s:.0f} |"
            f" {each.costs.level:.2f} ({100 * spread(each.costs):.0f} %) | {1e3 * each.costs.around_row_s:.2f} |"
        )
    yield ""
    for load, percent in zip(LOADS, differences(pairs), strict=True):
        yield f"load {load:g}: differs by {percent:.1f} % (bound {MOST_PERCENT:g} %)"


def spread(costs: MeasuredCosts) -> float:
    """The mean deviation of calls, as a share."""
    return float(np.average(np.abs(np.array(costs.times) / costs.level - 1), weights=costs.weights))


def percentile_of_answers(load: OpenLoopResult) -> float:
    """p99 of those who were answered."""
    return float(np.quantile(load.latencies_s, 0.99)) if load.latencies_s else float("inf")
