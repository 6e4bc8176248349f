"""Does the simulator tell the truth? A real server beside it: same arrivals, deadline and policy, and measured costs.

Behind `python -m bench.simulate --real`. What the simulator does not know is everything but the model's calls: HTTP,
JSON, the event loop, a core that is lent to somebody else. Some of that happens between calls, and there the simulator
is too optimistic; the rest happens beside calls and makes them longer. So what calls cost is measured in the same run:
each batch size alone, in this process on the server's cores, gives the curve's form; the seconds that the server
itself counted in calls under this very load give its level.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from app.batching.padding import BatchSizes
from app.batching.policy import SelfTuning
from app.bench.open_loop import OpenLoop, Target, arrivals, open_loop, run_precisely
from bench.cores import for_server_and_load, on_cores
from bench.heavy_server import INPUT, MODEL, VARIANTS, HeavyRequests, heavy_server, read_metrics
from bench.models import read_samples, saved_model
from bench.simulation import Arrival, MeasuredCosts, Outcome, simulate

#: Of what the server answers where it is asked for much more.
LOADS = (0.7, 1.5)

#: By how much the answers per second may differ.
MOST_PERCENT = 15.0

_SIGNATURE = "serving_default"
_SIZES = BatchSizes.powers_of_two(64)
_DEADLINE_S = 0.4

#: A server that answers less than this share of what it is asked for does all it can.
_FLOOD_S, _SATURATED = 2.0, 0.8

#: Each size is called for so long at the most, but three times.
_MEASURING_S = 0.4

Metrics = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Pair:
    """One load, real and simulated. `level`: how many times as long as alone calls took."""

    load: float
    level: float
    real: OpenLoop
    real_batch: float
    simulated: Outcome

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
        capacity = most_answered(port, _SIZES.largest / alone[_SIZES.largest])
        pairs = []
        for number in range(rounds):
            for load in LOADS:
                before = read_metrics(port)
                real = play(port, load * capacity, seconds, seed=number)
                calls, call_s = calls_between(before, read_metrics(port))
                level = call_s / sum(count * alone[size] for size, count in calls.items())
                simulated = simulated_like(real, {size: level * took_s for size, took_s in alone.items()}, seed=number)
                pairs.append(Pair(load, level, real, len(real.latencies_s) / sum(calls.values()), simulated))
        return pairs


def most_answered(port: int, rate: float) -> float:
    """Answers per second where more is asked for, beginning with twice the rate; the server learns what calls cost."""
    while True:
        rate *= 2
        flood = play(port, rate, _FLOOD_S, seed=0)
        if flood.answered_rate < _SATURATED * rate:
            return flood.answered_rate


def play(port: int, rate: float, seconds: float, seed: int) -> OpenLoop:
    requests = HeavyRequests(_DEADLINE_S)
    target = Target("127.0.0.1", port)
    return run_precisely(open_loop(target, requests.bytes, rate, seconds, seed=seed, check=requests.check))


def simulated_like(real: OpenLoop, call_s: Mapping[int, float], seed: int) -> Outcome:
    """The same arrivals; calls take `call_s` by size."""
    at_s = [Arrival(time_s) for time_s in arrivals(real.rate, real.seconds, seed)]
    costs = MeasuredCosts(call_s)
    return simulate(at_s, SelfTuning(), costs=costs, deadline_s=_DEADLINE_S, admission=True, sizes=_SIZES)


def call_in_process() -> Callable[[int], object]:
    """A call with so many rows by Ferry's runtime, with the execution variants that the server chose."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from app.runtime import RuntimeOptions, VariantOptions, create_runtime  # noqa: PLC0415 - after the setting above
    from app.warm_up import tune  # noqa: PLC0415 - as above

    runtime = create_runtime("tensorflow", RuntimeOptions(variants=VariantOptions("auto", cache=VARIANTS)))
    model = runtime.load(saved_model(MODEL))
    tune(model, _SIZES.allowed, lambda *_: None)
    row = read_samples(MODEL)[0][0]
    batches = {size: np.stack([row] * size) for size in _SIZES.allowed}
    return lambda size: model.run(_SIGNATURE, {INPUT: batches[size]}, ())


def curve_alone(call: Callable[[int], object], at_most_s: float = _MEASURING_S) -> dict[int, float]:
    """Median seconds of a call at each size."""
    return {size: median(_timed(call, size, at_most_s)) for size in _SIZES.allowed}


def _timed(call: Callable[[int], object], size: int, at_most_s: float) -> list[float]:
    call(size)
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < at_most_s:
        begin_s = time.perf_counter()
        call(size)
        taken.append(time.perf_counter() - begin_s)
    return taken


def calls_between(before: Metrics, after: Metrics) -> tuple[dict[int, float], float]:
    """How many calls of each padded size there were, and what they took in all, seconds."""
    bounds = sorted((float(bound), bound) for name, bound in after if name == "ferry_batch_rows_bucket")
    calls, below = {}, 0.0
    for value, bound in bounds:
        key = "ferry_batch_rows_bucket", bound
        up_to = after[key] - before.get(key, 0.0)
        if up_to > below:
            calls[_SIZES.padded(min(int(value), _SIZES.largest))] = up_to - below
        below = up_to
    total = "ferry_compute_seconds_sum", ""
    return calls, after[total] - before.get(total, 0.0)


def differences(pairs: Sequence[Pair]) -> list[float]:
    """By load: how far the median ratio of its rounds is from 1, in percent."""
    return [100 * abs(median(pair.ratio for pair in pairs if pair.load == load) - 1) for load in LOADS]


def report(pairs: Sequence[Pair]) -> Iterator[str]:
    yield (
        f"A real server of the {MODEL} beside the simulator; Poisson arrivals, deadline {1e3 * _DEADLINE_S:g} ms. "
        "Both had the same arrivals and policy, and calls cost what they did in that run."
    )
    yield ""
    yield "| load | per s | answers/s: real | simulated | ratio | rows a call | p99 ms | a call took, times alone |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in pairs:
        real, simulated = each.answered
        yield (
            f"| {each.load:g} | {each.real.rate:.0f} | {real:.0f} | {simulated:.0f} | {each.ratio:.3f} |"
            f" {each.real_batch:.1f}, {each.simulated.mean_batch:.1f} |"
            f" {1e3 * percentile_of_answers(each.real):.0f}, {1e3 * each.simulated.p99_s:.0f} | {each.level:.2f} |"
        )
    yield ""
    for load, percent in zip(LOADS, differences(pairs), strict=True):
        yield f"load {load:g}: differs by {percent:.1f} % (bound {MOST_PERCENT:g} %)"


def percentile_of_answers(load: OpenLoop) -> float:
    """p99 of those who were answered."""
    return float(np.quantile(load.latencies_s, 0.99)) if load.latencies_s else float("inf")
