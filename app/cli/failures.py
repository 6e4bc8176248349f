"""Errors at the command line: one line, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from app.config.sources import SettingsError
from app.core.errors import ServingError


@contextmanager
def one_line_failures(also: type[Exception] = ServingError) -> Iterator[None]:
    """Exit code 2 for a wrong setting; 1 for a wrong model or input, and for errors of type `also`."""
    try:
        yield
    except SettingsError as error:
        raise _exit(error, 2) from None
    except (ServingError, OSError, also) as error:
        raise _exit(error, 1) from None


def _exit(error: Exception, code: int) -> typer.Exit:
    typer.echo(" ".join(f"ferry: {error}".split()), err=True)
    return typer.Exit(code)
