"""`ferry plan`: how many replicas a rate needs, on which machine, and the autoscaler's settings that follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.cli.failures import one_line_failures
from app.cli.models import ModelsOption


def plan(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Measure this model here: a folder of a model or of one version, or a name in the models folder.",
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second, of all clients together.")] = None,
    p99: Annotated[
        float | None, typer.Option(help="Milliseconds at a replica that 99 of 100 requests must not exceed.")
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
        typer.Option(metavar="FILE", help="A curve that was measured on another machine; may be repeated."),
    ] = None,
    save_curve: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was measured here.")] = None,
    machine: Annotated[
        str, typer.Option(help="What this machine is called in price lists. [CPU or GPU: cpu, gpu]")
    ] = "",
    prices: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML: machine: price of a node an hour.")] = None,
    signature: Annotated[str, typer.Option(metavar="NAME", help="The signature that is measured.")] = "serving_default",
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
        bool,
        typer.Option("--hpa", help="Print a HorizontalPodAutoscaler, and prometheus-adapter's rules for it."),
    ] = False,
    models: ModelsOption = None,
) -> None:
    """Plan replicas, batch size and machine for a rate and a latency, from what calls of the model cost.

    Without a rate it measures the model and writes its curve. Of several curves the machine that costs least by the
    price list is planned for, or the one that needs the fewest nodes. docs/scaling.md tells how it computes.
    """
    from app.cli.plan_report import as_json, show_manifests, show_table  # noqa: PLC0415 - numpy
    from app.planning import autoscaling  # noqa: PLC0415 - numpy
    from app.planning.machine_choice import check_machines, plans_on  # noqa: PLC0415 - numpy
    from app.planning.measured_curve import CannotPlan, MeasuredCurve  # noqa: PLC0415 - numpy
    from app.planning.price_list import read_prices  # noqa: PLC0415 - numpy
    from app.planning.replica_plan import SERVER_RATE, Demand  # noqa: PLC0415 - numpy

    with one_line_failures(CannotPlan):
        # 1. The demand.
        _check_options(model, curve or (), save_curve, rate, p99, forms=json + keda + hpa)
        autoscaling.check_names(deployment, prometheus)
        demand = None
        if rate is not None and p99 is not None:
            most_rate = SERVER_RATE if server_rate is None else server_rate
            demand = Demand(rate, p99 / 1e3, rows, burst, headroom, most_rate, node_replicas, spare_nodes)

        # 2. Curves and prices.
        price_of = read_prices(prices) if prices is not None else None
        curves = [MeasuredCurve.read(file) for file in curve or ()]
        if model is not None:
            from app.cli.model_curve import measured_curve  # noqa: PLC0415 - the server's parts, for this alone

            curves.insert(0, measured_curve(model, models, signature, machine, sample))
        check_machines(curves, price_of)
        if save_curve is not None:
            curves[0].write(save_curve)
            typer.echo(f"Curve: {save_curve}", err=True)
        if demand is None:
            return

        # 3. The plans, the best one first.
        plans, reasons = plans_on(curves, demand, price_of)
        for reason in reasons:
            typer.echo(f"ferry: left out: {reason}", err=True)
        scaling = autoscaling.autoscaling(plans[0])
        if json:
            typer.echo(as_json(plans, scaling, price_of))
        elif keda:
            show_manifests(autoscaling.keda_manifest(scaling, deployment, prometheus))
        elif hpa:
            show_manifests(
                autoscaling.hpa_manifest(scaling, deployment), autoscaling.adapter_rules(scaling, deployment)
            )
        else:
            show_table(plans, scaling, price_of)


def _check_options(
    model: str | None,
    curves: Sequence[Path],
    save_curve: Path | None,
    rate: float | None,
    p99: float | None,
    *,
    forms: int,
) -> None:
    """Check the combination of options. Raises CannotPlan: options are missing, or exclude each other."""
    from app.planning.measured_curve import CannotPlan  # noqa: PLC0415 - numpy

    if model is None and not curves:
        raise CannotPlan("--model or --curve is missing: expected a model to measure, or a file of --save-curve")
    if save_curve is not None and model is None:
        raise CannotPlan("--save-curve needs --model: expected a model to measure")
    if forms > 1:
        raise CannotPlan("--json, --keda and --hpa: expected one of them")
    only_measures = save_curve is not None and rate is None and p99 is None
    if not only_measures and (rate is None or p99 is None):
        missing = "--rate" if rate is None else "--p99"
        raise CannotPlan(f"{missing} is missing: expected --rate (requests a second) and --p99 (milliseconds)")
