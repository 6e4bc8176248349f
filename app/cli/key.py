"""`ferry key`: API keys for the access file."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from app.cli.failures import one_line_failures

#: Marks a key for people and for scanners of repositories; 32 random bytes follow.
PREFIX = "ferry_"

key = typer.Typer(help="API keys for the access file.", no_args_is_help=True, rich_markup_mode=None)


@key.callback()
def _key() -> None:
    """API keys for the access file."""


@key.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is, as logs and metrics name the caller.")],
    *,
    models: Annotated[str, typer.Option(metavar="PATTERNS", help="Models it may use, such as digits,bert-*.")] = "*",
    permissions: Annotated[
        str, typer.Option(metavar="NAMES", help="Some of infer, metadata, administration and metrics.")
    ] = "infer,metadata",
    days: Annotated[int | None, typer.Option(min=1, max=36_500, help="After so many days it is not valid.")] = None,
) -> None:
    """Make a new key. It is printed once, and kept nowhere; the entry for the access file holds its SHA-256 alone."""
    from app.access.access_file import AccessFileError, entry_of  # noqa: PLC0415 - `ferry --help` needs no YAML

    made = PREFIX + secrets.token_urlsafe(32)
    expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    with one_line_failures(AccessFileError):
        entry = entry_of(name, made, models=_listed(models), permissions=_listed(permissions), expires=expires)
    typer.echo(f"The key, which is shown only now: {made}", err=True)
    typer.echo("Its entry for the access file:", err=True)
    typer.echo(entry, nl=False)


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
