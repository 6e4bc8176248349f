"""The command `ferry`; only `app/__main__.py` imports it.

Each command imports what it needs when it runs, so `ferry --help` takes no time.
"""

from __future__ import annotations

from typing import Annotated

import typer

from app import __version__
from app.cli.bench import bench
from app.cli.check import check
from app.cli.import_model import import_model
from app.cli.inspection import inspect
from app.cli.key import key
from app.cli.plan import plan
from app.cli.predict import predict
from app.cli.serve import ServeCommand, serve
from app.cli.shard import shard

app = typer.Typer(
    help="Serve TensorFlow SavedModels, in order and in batches.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(cls=ServeCommand, context_settings={"max_content_width": 120})(serve)
app.command()(predict)
app.command()(inspect)
app.command()(check)
app.command("import")(import_model)
app.command()(bench)
app.command()(plan)
app.command()(shard)
app.add_typer(key, name="key")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ferry {__version__}")
        raise typer.Exit


@app.callback()
def _ferry(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    app(prog_name="ferry")
