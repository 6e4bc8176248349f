"""`ferry bench`: the highest rate that a server answers in time."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.failures import one_line_failures

if TYPE_CHECKING:
    from app.bench.curve import RatePoint
    from app.bench.trials import Trials

# The options.

_UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Where requests go: http://HOST:PORT/v1/models/MODEL:predict (JSON), .../v2/models/MODEL/infer "
        "(binary), or any other URL with --body; https:// as well.",
    ),
]
_BodyOption = Annotated[
    Path | None,
    typer.Option("--body", metavar="FILE", help="What to send; made from the model's metadata if not given."),
]
_HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="A request header; may be repeated.")
]
_CaOption = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="Authorities of an https server in PEM. [the system's]"),
]
_CertificateOption = Annotated[
    Path | None,
    typer.Option("--certificate", metavar="FILE", help="This client's certificate in PEM, for mutual TLS."),
]
_KeyOption = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="Its private key. [in the file of --certificate]")
]
_RowsOption = Annotated[int, typer.Option(min=1, help="Rows of a request made from metadata.")]
_TargetP99MsOption = Annotated[float, typer.Option(min=0.1, help="Latency that 99 of 100 requests must not exceed.")]
_SecondsOption = Annotated[float, typer.Option(min=0.1, max=600, help="How long each rate is tried.")]
_FirstRateOption = Annotated[float, typer.Option(min=1, help="The first rate, in requests a second.")]
_TrialsOption = Annotated[int, typer.Option(min=1, max=50, help="How many rates are tried at most.")]
_ConnectionsOption = Annotated[
    int, typer.Option(min=1, max=900, help="How many requests are sent and unanswered at most.")
]
_PictureOption = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE.svg", help="Draws throughput against latency.")
]


def bench(
    url: _UrlArgument,
    *,
    body: _BodyOption = None,
    header: _HeaderOption = None,
    ca: _CaOption = None,
    certificate: _CertificateOption = None,
    key: _KeyOption = None,
    rows: _RowsOption = 1,
    target_p99_ms: _TargetP99MsOption = 50.0,
    seconds: _SecondsOption = 3.0,
    first_rate: _FirstRateOption = 100.0,
    trials: _TrialsOption = 14,
    connections: _ConnectionsOption = 256,
    picture: _PictureOption = None,
) -> None:
    """Find the highest rate that a server answers within a latency target.

    Requests are sent by the clock (Poisson arrivals) whether or not the server keeps up, and each latency runs from
    the time at which its request was due. A rate is good if p99 is within the target and nothing fails.
    """
    from app.bench.request_body import CannotMakeRequest, TargetUrl  # noqa: PLC0415 - `ferry --help` needs none of it
    from app.bench.trials import Trials  # noqa: PLC0415 - likewise

    with one_line_failures(CannotMakeRequest):
        address, content = TargetUrl.parse(url), body.read_bytes() if body else None
        tls = _tls(address.https, ca, certificate, key)
        wanted = Trials(address, content, _headers(header or []), rows, connections, target_p99_ms, seconds, tls)
        points = _run_all(wanted, first_rate, trials)
    _show(points, target_p99_ms, connections)
    if picture is not None:
        from app.bench.curve import draw  # noqa: PLC0415 - likewise

        picture.write_text(draw(points, target_p99_ms, url), encoding="utf-8")
        typer.echo(f"Picture: {picture}")
    if not any(point.good for point in points):
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
    """Raises BadParameter."""
    try:
        load()
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be used: {error}") from None


def _run_all(wanted: Trials, first_rate: float, trials: int) -> list[RatePoint]:
    from rich.console import Console  # noqa: PLC0415 - likewise
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as above

    from app.bench.open_loop import run_precisely  # noqa: PLC0415 - only `ferry bench` needs it

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("asking the server", total=trials)

        def before(rate: float) -> None:
            progress.update(bar, description=f"{rate:,.0f} requests/s")

        def after(point: RatePoint) -> None:
            progress.advance(bar)
            progress.console.print(f"{point.rate:,.0f} requests/s: p99 {point.p99_ms:.1f} ms")

        return run_precisely(wanted.search(first_rate, trials, before, after))


def _show(points: list[RatePoint], target_p99_ms: float, connections: int) -> None:
    typer.echo(f"{'rate/s':>10} {'answered/s':>11} {'p50 ms':>9} {'p99 ms':>9} {'failed':>7}  ")
    for point in sorted(points, key=lambda point: point.rate):
        note = "ok" if point.good else "too much"
        if point.late_p99_ms > max(1.0, point.p99_ms / 4):
            note += f"; this generator was late itself (p99 {point.late_p99_ms:.1f} ms)"
        if point.held_back:
            note += (
                f"; {point.held_back:.1%} of the requests waited here since all {connections} connections were busy "
                "(counted into their latencies; --connections)"
            )
        if point.failures:
            note += f"; {point.failures}"
        typer.echo(
            f"{point.rate:>10,.0f} {point.answered_rate:>11,.0f} {point.p50_ms:>9.2f} {point.p99_ms:>9.2f} "
            f"{point.failed:>7}  {note}"
        )
    best = max((point.rate for point in points if point.good), default=None)
    if best is None:
        typer.echo(f"No rate was answered with p99 <= {target_p99_ms:g} ms.")
    else:
        typer.echo(f"Highest rate with p99 <= {target_p99_ms:g} ms: {best:,.0f} requests/s, {connections} connections.")
