"""`ferry check`: what a server would find wrong with models and pipelines, and how pipelines look."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.failures import one_line_failures
from app.config.sources import load_settings

if TYPE_CHECKING:
    from app.cli.offline_check import Checked, Findings


def check(  # noqa: PLR0917 - typer makes options of them
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A models folder, that of a model or of a version, or a pipeline.yaml.",
            readable=False,
        ),
    ],
    models: Annotated[
        Path | None,
        typer.Option("--models", metavar="FOLDER", help="Folder of the steps' models. [default: that around FOLDER]"),
    ] = None,
    model_config_file: Annotated[
        Path | None,
        typer.Option(
            "--model-config-file",
            metavar="FILE",
            help="ModelServerConfig: which models, versions and labels there are.",
        ),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print the pipelines as a graph for Graphviz.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Look at files only: load no model.")] = False,
    limit_s: Annotated[
        float, typer.Option("--limit-s", metavar="SECONDS", min=0.001, help="Most seconds to load and call a model.")
    ] = 600.0,
) -> None:
    """Check models and pipelines as a server would, without one, and draw the pipelines.

    Each model is loaded, warmed up and called by the server's own code, in a process of its own: what would end a
    server ends that process. The lines that a server would log of its signatures are shown. Each fault is a line. The
    exit code is 0 if nothing is wrong, 1 if something is, 2 if the command itself is.
    """
    with one_line_failures(), _warnings() as warnings:
        settings = load_settings({})
        from app.cli.offline_check import check_folder  # noqa: PLC0415 - numpy

        findings = check_folder(folder, settings, models, model_config_file)
        if not quick:
            findings.load(limit_s)
    findings.notes += [" ".join(each.getMessage().split()) for each in warnings]
    _print(findings, dot=dot, relative=not folder.is_absolute())
    raise typer.Exit(1 if findings.faults else 0)


def _print(findings: Findings, *, dot: bool, relative: bool) -> None:
    from app.pipelines.drawing import dot as graph  # noqa: PLC0415 - numpy
    from app.pipelines.plan import Plan  # noqa: PLC0415 - numpy

    def shown(path: Path) -> str:
        return os.path.relpath(path) if relative else str(path)

    if dot:
        _tell(graph({each.title: each.content for each in findings.checked if isinstance(each.content, Plan)}))
    else:
        for each in findings.checked:
            _tell(f"{each.title}: {shown(each.path)}\n{_content(each)}")
    for note in findings.notes:
        _tell(f"note: {note}", err=True)
    for path, text in findings.faults:
        _tell(f"{shown(path)}: {' '.join(text.split())}", err=True)


def _content(checked: Checked) -> str:
    from app.pipelines.drawing import LEGEND, describe, draw  # noqa: PLC0415 - numpy
    from app.pipelines.plan import Plan  # noqa: PLC0415 - numpy

    if not isinstance(checked.content, Plan):
        if not checked.content:
            return "  no signatures: nothing can call it; tf.saved_model.save(..., signatures=...) gives it some\n"
        signatures = f"signatures: {', '.join(checked.content)} (ferry inspect shows inputs and outputs)"
        return "\n".join(f"  {line}" for line in (signatures, *checked.found)) + "\n"
    lines = [*describe(checked.content).splitlines(), "", *draw(checked.content).splitlines(), "", LEGEND, ""]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _tell(text: str, *, err: bool = False) -> None:
    """Prints a text whose names may have any letters, to a terminal that may know only ASCII."""
    from app.pipelines.drawing import ASCII, printable  # noqa: PLC0415 - numpy

    text = "\n".join(map(printable, text.split("\n")))
    encoding = (sys.stderr if err else sys.stdout).encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(ASCII).encode(encoding, "backslashreplace").decode(encoding)
    typer.echo(text, err=err)


@contextmanager
def _warnings() -> Iterator[list[logging.LogRecord]]:
    """The warnings that are logged in this context: a server's log would have them, too."""
    collector, logger = BufferingHandler(sys.maxsize), logging.getLogger("app")
    collector.setLevel(logging.WARNING)
    logger.addHandler(collector)
    try:
        yield collector.buffer
    finally:
        logger.removeHandler(collector)
