"""The output of `ferry plan`: tables for people, the same figures as JSON, and manifests."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import typer
import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.planning.autoscaling import Autoscaling
from app.planning.batch_queue import QueueFigures
from app.planning.replica_plan import Loss, ReplicaPlan, cheaper_from, cost_an_hour

_WIDTH_IN_A_PIPE = 200


class _Manifests(yaml.SafeDumper):
    """Quotes texts that other readers of YAML than PyYAML take for numbers or truth values, such as 1e3 or n."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    quoted = re.fullmatch(r"[-+.0-9].*|[yYnN]", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if quoted else None)


_Manifests.add_representer(str, _text)


def show_manifests(*manifests: object) -> None:
    typer.echo(yaml.dump_all(manifests, Dumper=_Manifests, sort_keys=False, width=1000), nl=False)


def show_table(plans: Sequence[ReplicaPlan], scaling: Autoscaling, price_of: Mapping[str, float] | None) -> None:
    """The plans side by side, the best first; below it what the best one's autoscaler is told."""
    demand = plans[0].demand
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_IN_A_PIPE, markup=False, highlight=False)
    bursts = f", bursts of {demand.burst:g} times the rate" if demand.burst > 1 else ""
    wanted = f"{demand.rate:,.6g} requests/s of {_counted(demand.request_rows, 'row')}{bursts}"
    console.print(f"Wanted: {wanted}; p99 <= {1e3 * demand.p99_s:g} ms at the replica.")

    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for each in plans:
        table.add_column(each.curve.machine, justify="right", overflow="fold")
    columns = [list(_lines(each, price_of)) for each in plans]
    for cells in zip(*columns, strict=True):
        table.add_row(Text(cells[0][0]), *[Text(text) for _, text in cells])
    console.print(table)

    for line in (*_break_even(plans, price_of), *_scaling_lines(plans[0], scaling)):
        console.print(line)


def _lines(planned: ReplicaPlan, price_of: Mapping[str, float] | None) -> Iterator[tuple[str, str]]:
    demand, spare = planned.demand, planned.replicas - planned.needed
    yield "replicas (spare)", f"{planned.replicas} ({spare})"
    yield "nodes", f"{planned.nodes}"
    yield "most requests/s of a replica", f"{_rate(planned.most_rate)}, by {planned.limit}"
    yield "  p99, busy, rows a call", _figures(planned.at_most)
    yield f"usually {demand.rate:,.6g}/s on all", f"{_rate(planned.replica_rate)}/s each"
    yield "  p99, busy, rows a call", _figures(planned.usual)
    yield "a node is lost", _loss(planned.loss)
    yield "largest batch", f"{planned.batch_rows}"
    if price_of is not None:
        hour = cost_an_hour(planned, price_of[planned.curve.machine])
        yield "cost an hour", f"{hour:,.2f}"
        yield "  a million requests", f"{1e6 * hour / (3600 * demand.rate):,.4g}"


def _figures(figures: QueueFigures) -> str:
    return f"{1e3 * figures.p99_s:.3g} ms, {100 * figures.busy:.1f} %, {figures.batch_rows:.1f}"


def _loss(loss: Loss) -> str:
    if loss.figures is None:
        return f"{100 * loss.answered:.0f} % answered, the rest 503"
    return f"p99 {1e3 * loss.figures.p99_s:.3g} ms, busy {100 * loss.figures.busy:.1f} %"


def _break_even(plans: Sequence[ReplicaPlan], price_of: Mapping[str, float] | None) -> Iterator[str]:
    """The rates from which each other machine costs less than the best one, and the best one less than it."""
    if price_of is None:
        return
    best, *others = plans
    for one, other in [pair for each in others for pair in ((best, each), (each, best))]:
        rate = _cheaper_from(one, other, price_of)
        if rate is not None:
            since = f"From {_rate(rate)} requests/s on" if rate else "At every rate"
            yield f"{since} {one.curve.machine} costs less than {other.curve.machine}."


def _cheaper_from(one: ReplicaPlan, other: ReplicaPlan, price_of: Mapping[str, float]) -> float | None:
    return cheaper_from(one, price_of[one.curve.machine], other, price_of[other.curve.machine])


def _scaling_lines(planned: ReplicaPlan, scaling: Autoscaling) -> Iterator[str]:
    yield (
        f"Server: --max-batch-size {max(planned.curve.seconds)} --target-p99-ms {1e3 * planned.demand.p99_s:g}. "
        f"Autoscaler (--keda, --hpa print it): {scaling.least} to {scaling.most} replicas; for each replica"
    )
    for each in scaling.triggers:
        yield f"  {each.name}: {each.target:.4g} of {each.query}"
    yield f"  unanswered requests: {scaling.ongoing_requests:.3g}, where an autoscaler counts these (Ray, Knative)"
    if not scaling.scales_by_busy:
        yield (
            f"  The busy share does not tell how full a replica is: {100 * planned.usual.busy:.1f} % usually, "
            f"{100 * planned.at_most.busy:.1f} % at most. Batches grow instead."
        )


def _rate(rate: float) -> str:
    """Whole requests a second, where that says enough: calls may take minutes."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.3g}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def as_json(plans: Sequence[ReplicaPlan], scaling: Autoscaling, price_of: Mapping[str, float] | None) -> str:
    """The plans as JSON, the best plan first. Units: seconds, rows, and requests a second."""
    return json.dumps(
        {
            "demand": asdict(plans[0].demand),
            "plans": [_plan_json(each, price_of) for each in plans],
            "autoscaling": asdict(scaling),
            "cheaper_from": _cheaper_json(plans, price_of),
        },
        indent=1,
    )


def _plan_json(planned: ReplicaPlan, price_of: Mapping[str, float] | None) -> dict[str, Any]:
    return {
        "machine": planned.curve.machine,
        "model": planned.curve.model,
        "signature": planned.curve.signature,
        "replicas": planned.replicas,
        "needed": planned.needed,
        "nodes": planned.nodes,
        "most_batch_rows": planned.batch_rows,
        "most_rate": planned.most_rate,
        "limit": planned.limit,
        "replica_rate": planned.replica_rate,
        "at_most": asdict(planned.at_most),
        "usual": asdict(planned.usual),
        "node_lost": asdict(planned.loss),
        "cost_an_hour": None if price_of is None else cost_an_hour(planned, price_of[planned.curve.machine]),
    }


def _cheaper_json(plans: Sequence[ReplicaPlan], price_of: Mapping[str, float] | None) -> list[dict[str, Any]]:
    """The rates from which one machine costs less than another, for each two where there is one."""
    if price_of is None:
        return []
    return [
        {"machine": one.curve.machine, "than": other.curve.machine, "from_rate": rate}
        for one in plans
        for other in plans
        if one is not other and (rate := _cheaper_from(one, other, price_of)) is not None
    ]
