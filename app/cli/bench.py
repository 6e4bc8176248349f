"""`ferry bench`: the highest rate that a server answers in time."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.failures import one_line_failures

if TYPE_CHECKING:
    from app.bench.open_loop import OpenLoopResult
    from app.bench.trials import Trials


def bench(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Where requests go: http://HOST:PORT/v1/models/MODEL:predict (JSON), .../v2/models/MODEL/infer "
            "(binary), or any other URL with --body; https:// as well.",
        ),
    ],
    *,
    body: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to send; made from the model's metadata if not given.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A request header; may be repeated.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Authorities of an https server in PEM. [the system's]")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="This client's certificate in PEM, for mutual TLS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key. [in the file of --certificate]")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a request made from metadata.")] = 1,
    target_p99_ms: Annotated[
        float, typer.Option(min=0.1, help="Latency that 99 of 100 requests must not exceed.")
    ] = 50.0,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="How long each rate is tried.")] = 3.0,
    first_rate: Annotated[float, typer.Option(min=1, help="The first rate, in requests a second.")] = 100.0,
    trials: Annotated[int, typer.Option(min=1, max=50, help="How many rates are tried at most.")] = 14,
    connections: Annotated[
        int, typer.Option(min=1, max=900, help="How many requests are sent and unanswered at most.")
    ] = 256,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draws throughput against latency.")] = None,
) -> None:
    """Find the highest rate that a server answers within a latency target.

    Requests are sent by the clock (Poisson arrivals) whether or not the server keeps up, and each latency runs from
    the time at which its request was due. A rate is good if p99 is within the target and nothing fails.
    """
    from app.bench.request_body import CannotMakeRequest, TargetUrl  # noqa: PLC0415 - `ferry --help` needs none of it
    from app.bench.trials import Trials  # noqa: PLC0415 - `ferry --help` needs none of it

    with one_line_failures(CannotMakeRequest):
        address, content = TargetUrl.parse(url), body.read_bytes() if body else None
        tls = _tls(address.https, ca, certificate, key)
        wanted = Trials(address, content, _headers(header or []), rows, connections, target_p99_ms, seconds, tls)
        loads = _run_all(wanted, first_rate, trials)
    _show(loads, wanted)
    if picture is not None:
        from app.bench.curve import draw  # noqa: PLC0415 - `ferry --help` needs none of it

        picture.write_text(draw(loads, target_p99_ms, url), encoding="utf-8")
        typer.echo(f"Picture: {picture}")
    if not any(map(wanted.is_good, loads)):
        raise typer.Exit(1)


def _headers(given: list[str]) -> dict[str, str]:
    pairs = [each.partition(":") for each in given]
    for each, (name, colon, _) in zip(given, pairs, strict=True):
        if not colon or not name.strip():
            raise typer.BadParameter(f"{each!r} should be NAME:VALUE", param_hint="--header")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _tls(https: bool, ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The TLS of an https URL; None for http. Raises BadParameter."""
    if not https:
        if ca or certificate or key:
            raise typer.BadParameter("--ca, --certificate and --key are for a URL of https")
        return None
    if key is not None and certificate is None:
        raise typer.BadParameter("--key goes with --certificate")
    context = ssl.create_default_context()
    if ca is not None:
        _load(f"--ca {ca}", lambda: context.load_verify_locations(ca))
    if certificate is not None:
        _load(f"--certificate {certificate}", lambda: context.load_cert_chain(certificate, key))
    return context


def _load(name: str, load: Callable[[], None]) -> None:
    """Load the file of option `name`. Raises BadParameter if it cannot be read."""
    try:
        load()
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be used: {error}") from None


def _run_all(wanted: Trials, first_rate: float, trials: int) -> list[OpenLoopResult]:
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - slow to import

    from app.bench.open_loop import run_precisely  # noqa: PLC0415 - only `ferry bench` needs it

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("asking the server", total=trials)

        def before(rate: float) -> None:
            progress.update(bar, description=f"{rate:,.0f} requests/s")

        def after(load: OpenLoopResult) -> None:
            progress.advance(bar)
            progress.console.print(f"{load.rate:,.0f} requests/s: p99 {1e3 * load.latency_s(0.99):.1f} ms")

        return run_precisely(wanted.search(first_rate, trials, before, after))


def _show(loads: list[OpenLoopResult], wanted: Trials) -> None:
    typer.echo(f"{'rate/s':>10} {'answered/s':>11} {'p50 ms':>9} {'p99 ms':>9} {'failed':>7}  ")
    for load in sorted(loads, key=lambda load: load.rate):
        p50_ms, p99_ms, late_ms = 1e3 * load.latency_s(0.5), 1e3 * load.latency_s(0.99), 1e3 * load.late_p99_s
        note = "ok" if wanted.is_good(load) else "too much"
        if late_ms > max(1.0, p99_ms / 4):
            note += f"; this generator was late itself (p99 {late_ms:.1f} ms)"
        if load.held_back:
            note += (
                f"; {load.held_back / load.intended:.1%} of the requests waited here since all {wanted.connections} "
                "connections were busy (counted into their latencies; --connections)"
            )
        if load.failures:
            note += "; " + ", ".join(f"{count} x {what}" for what, count in load.failures.most_common(2))
        typer.echo(
            f"{load.rate:>10,.0f} {load.answered_rate:>11,.0f} {p50_ms:>9.2f} {p99_ms:>9.2f} {load.failed:>7}  {note}"
        )
    best = max((load.rate for load in loads if wanted.is_good(load)), default=None)
    target = f"p99 <= {wanted.target_p99_ms:g} ms"
    if best is None:
        typer.echo(f"No rate was answered with {target}.")
    else:
        typer.echo(f"Highest rate with {target}: {best:,.0f} requests/s, {wanted.connections} connections.")
