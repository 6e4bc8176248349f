"""`ferry plan`: how many replicas a rate needs, on which machine, and the autoscaler's settings that follow."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.failures import one_line_failures
from app.cli.models import ModelsOption

if TYPE_CHECKING:
    from app.core.inference import Array, ModelSignature
    from app.planning.measured_curve import MeasuredCurve
    from app.planning.replica_plan import Demand, ReplicaPlan


def plan(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Measure this model here: a folder of a model or of one version, or a name in the models folder.",
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Requests a second, of all clients together.")] = None,
    p99: Annotated[
        float | None, typer.Option("--p99", help="Milliseconds at a replica that 99 of 100 requests must not exceed.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of a request.")] = 1,
    burst: Annotated[float, typer.Option(help="How many times the mean rate comes in bursts: 1 (none) to 2.")] = 1.0,
    headroom: Annotated[float, typer.Option(help="Share of a replica's capacity that stays free.")] = 0.2,
    server_rate: Annotated[
        float | None,
        typer.Option(help="Requests a second that a replica takes at most, as 'ferry bench' finds them. [10000]"),
    ] = None,
    node_replicas: Annotated[int, typer.Option(help="Replicas on each node: so many a lost node takes along.")] = 1,
    spare_nodes: Annotated[int, typer.Option(help="Nodes that may be lost while the target still holds.")] = 1,
    curve: Annotated[
        list[Path] | None,
        typer.Option("--curve", metavar="FILE", help="A curve that was measured on another machine; may be repeated."),
    ] = None,
    save_curve: Annotated[
        Path | None, typer.Option("--save-curve", metavar="FILE", help="Write what was measured here.")
    ] = None,
    machine: Annotated[
        str, typer.Option(help="What this machine is called in price lists. [CPU or GPU: cpu, gpu]")
    ] = "",
    prices: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", help="YAML: machine: price of a node an hour.")
    ] = None,
    signature: Annotated[
        str, typer.Option("--signature", metavar="NAME", help="The signature that is measured.")
    ] = "serving_default",
    sample: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="A request, as for ferry predict, whose first row is measured. [zeros]"
        ),
    ] = None,
    deployment: Annotated[str, typer.Option(help="The Deployment that --keda and --hpa scale.")] = "ferry",
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Where KEDA finds Prometheus.")
    ] = "http://prometheus.monitoring:9090",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    keda: Annotated[bool, typer.Option("--keda", help="Print a ScaledObject for KEDA.")] = False,
    hpa: Annotated[
        bool, typer.Option("--hpa", help="Print a HorizontalPodAutoscaler, and prometheus-adapter's rules for it.")
    ] = False,
    models: ModelsOption = None,
) -> None:
    """Plan replicas, batch size and machine for a rate and a latency, from what calls of the model cost.

    Without a rate it measures the model and writes its curve. Of several curves the machine that costs least by the
    price list is planned for, or the one that needs the fewest nodes. docs/scaling.md tells how it computes.
    """
    from app.planning.measured_curve import CannotPlan, MeasuredCurve  # noqa: PLC0415 - numpy
    from app.planning.price_list import read_prices  # noqa: PLC0415 - as above
    from app.planning.replica_plan import SERVER_RATE, Demand  # noqa: PLC0415 - as above

    with one_line_failures(CannotPlan):
        # 1. What is wanted.
        if model is None and not curve:
            raise CannotPlan("--model or --curve is missing: expected a model to measure, or a file of --save-curve")
        if save_curve is not None and model is None:
            raise CannotPlan("--save-curve needs --model: expected a model to measure")
        if json + keda + hpa > 1:
            raise CannotPlan("--json, --keda and --hpa: expected one of them")
        if (rate is None or p99 is None) and not (rate is p99 and save_curve is not None):
            missing = "--rate" if rate is None else "--p99"
            raise CannotPlan(f"{missing} is missing: expected --rate (requests a second) and --p99 (milliseconds)")
        demand = None
        if rate is not None and p99 is not None:
            server_rate = SERVER_RATE if server_rate is None else server_rate
            demand = Demand(rate, p99 / 1e3, rows, burst, headroom, server_rate, node_replicas, spare_nodes)

        # 2. Curves and prices.
        price_of = read_prices(prices) if prices is not None else None
        curves = [MeasuredCurve.read(file) for file in curve or ()]
        if model is not None:
            curves.insert(0, _measured(model, models, signature, machine, sample))
        _check_machines(curves, price_of)
        if save_curve is not None:
            curves[0].write(save_curve)
            typer.echo(f"Curve: {save_curve}", err=True)

        # 3. The plans, the best one first.
        if demand is not None:
            plans = _planned(curves, demand, price_of)
            _show(plans, price_of, json=json, keda=keda, hpa=hpa, deployment=deployment, prometheus=prometheus)


def _check_machines(curves: Sequence[MeasuredCurve], price_of: Mapping[str, float] | None) -> None:
    from app.planning.measured_curve import CannotPlan  # noqa: PLC0415 - as above

    machines = [each.machine for each in curves]
    for name in machines:
        if machines.count(name) > 1:
            raise CannotPlan(
                f"machine {name!r} has several curves, but should have one; --machine names that of --model"
            )
        if price_of is not None and name not in price_of:
            raise CannotPlan(f"the price list has no machine {name!r}, only {', '.join(sorted(price_of))}")


def _measured(model: str, models: Path | None, name: str, machine: str, sample: Path | None) -> MeasuredCurve:
    from app.cli.input_files import find_signature  # noqa: PLC0415 - as above
    from app.cli.models import opened_model  # noqa: PLC0415 - as above
    from app.core.batch_sizes import BatchSizes  # noqa: PLC0415 - as above
    from app.planning.measured_curve import CannotPlan, MeasuredCurve, measure  # noqa: PLC0415 - as above

    body = None if sample is None else sample.read_bytes()
    with opened_model(model, models) as opened:
        signature = find_signature(opened.model.signatures, name)
        if not signature.batchable:
            raise CannotPlan(f"signature {name!r} has no rows that could share calls: there is nothing to plan with")
        settings = opened.settings
        sizes = BatchSizes.of(settings.max_batch_size, settings.batch_sizes).allowed
        inputs = _inputs(signature, sizes, body)
        seconds, spread = measure(
            lambda rows: opened.model.run(name, inputs[rows], ()), sizes, opened.slots, _tell_size
        )
        kind = "gpu" if any("GPU" in each for each in opened.devices) else "cpu"
        model_name = opened.path.parent.name
    return MeasuredCurve(machine or kind, model_name, name, seconds, opened.slots, spread)


def _inputs(signature: ModelSignature, sizes: Sequence[int], body: bytes | None) -> Mapping[int, dict[str, Array]]:
    """By rows: as many times the first row of the request, or zeros. Raises CannotPlan, InvalidRequest."""
    from app.cli.input_files import read_inputs  # noqa: PLC0415 - numpy
    from app.core.sample_inputs import zero_inputs  # noqa: PLC0415 - as above
    from app.planning.measured_curve import CannotPlan  # noqa: PLC0415 - as above

    if signature.ragged or signature.sparse:
        raise CannotPlan(f"signature {signature.name!r} has ragged or sparse inputs: expected dense ones")
    if body is None:
        if not signature.fixed_inner_shapes:
            raise CannotPlan(
                f"signature {signature.name!r} has inputs of free shape, and what calls cost depends on it: expected "
                "--input with a request of the usual shape"
            )
        return {rows: zero_inputs(signature, rows) for rows in sizes}
    _, given, _ = read_inputs(body, {signature.name: signature}, signature.name)
    return {rows: {name: array[:1].repeat(rows, 0) for name, array in given.items()} for rows in sizes}


def _tell_size(rows: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\rmeasuring calls of {rows} rows ", nl=False, err=True)


def _planned(
    curves: Sequence[MeasuredCurve], demand: Demand, price_of: Mapping[str, float] | None
) -> Sequence[ReplicaPlan]:
    """Of the machines that can meet the demand, the best first. Raises CannotPlan if none can."""
    from app.planning.measured_curve import CannotPlan  # noqa: PLC0415 - as above
    from app.planning.replica_plan import ReplicaPlan, cost_an_hour  # noqa: PLC0415 - as above
    from app.planning.replica_plan import plan as plan_replicas  # noqa: PLC0415 - as above

    plans, reasons = list[ReplicaPlan](), list[str]()
    for each in curves:
        try:
            plans.append(plan_replicas(each, demand))
        except CannotPlan as error:
            reasons.append(str(error))
    if not plans:
        raise CannotPlan("; ".join(reasons))
    for reason in reasons:
        typer.echo(f"ferry: left out: {reason}", err=True)

    def rank(planned: ReplicaPlan) -> float:
        return planned.nodes if price_of is None else cost_an_hour(planned, price_of[planned.curve.machine])

    return sorted(plans, key=rank)


def _show(
    plans: Sequence[ReplicaPlan],
    price_of: Mapping[str, float] | None,
    *,
    json: bool,
    keda: bool,
    hpa: bool,
    deployment: str,
    prometheus: str,
) -> None:
    from app.planning.autoscaling import adapter_rules, autoscaling, hpa_manifest, keda_manifest  # noqa: PLC0415 - as above

    scaling = autoscaling(plans[0])
    if keda or hpa:
        import yaml  # noqa: PLC0415 - for this alone

        documents = (
            [keda_manifest(scaling, deployment, prometheus)]
            if keda
            else [hpa_manifest(scaling, deployment), adapter_rules(scaling)]
        )
        typer.echo(yaml.safe_dump_all(documents, sort_keys=False, width=1000), nl=False)
        return
    from app.cli.plan_report import as_json, show_table  # noqa: PLC0415 - as above

    if json:
        typer.echo(as_json(plans, scaling, price_of))
    else:
        show_table(plans, scaling, price_of)
