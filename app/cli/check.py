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
            help="A models folder, the folder of a model or of a version, or a pipeline.yaml.",
            readable=False,
        ),
    ],
    models: Annotated[
        Path | None,
        typer.Option(
            "--models",
            metavar="FOLDER",
            help="Folder of the steps' models. [default: FOLDER, the models folder that holds it, or the setting]",
        ),
    ] = None,
    model_config_file: Annotated[
        Path | None,
        typer.Option("--model-config-file", metavar="FILE", help="ModelServerConfig: the models, versions and labels."),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print the pipelines as a graph for Graphviz.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Look at files only: load no model.")] = False,
    limit_s: Annotated[
        float, typer.Option("--limit-s", metavar="SECONDS", min=0.001, help="Most seconds to load and call a model.")
    ] = 600.0,
) -> None:
    """Check models and pipelines without a server, as a server would, and draw the pipelines.

    Each model is loaded, warmed up and called by the server's own code, in a child process: what would end a server
    ends the child. --quick loads none. The lines that a server would log of the model's signatures are shown. Each
    fault is a line. The exit code is 0 if nothing is wrong, 1 if a model, a pipeline or a file is, 2 if an argument or
    a setting is.
    """
    # 1. The findings, by settings of the environment and the file alone: this command has no flag of a setting.
    with one_line_failures(), _warnings() as warnings:
        settings = load_settings({})
        from app.cli.offline_check import check_folder  # noqa: PLC0415 - numpy

        findings = check_folder(folder, settings, models, model_config_file)
        if not quick:
            findings.load(limit_s)

    # 2. Warnings of the check become notes, beside those of its findings.
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
            return "  no signatures, so no request can call it; tf.saved_model.save(..., signatures=...) adds some\n"
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
    """The records of the logger `app` from WARNING on, while the context lasts; a server would log them, too."""
    collector, logger = BufferingHandler(sys.maxsize), logging.getLogger("app")
    collector.setLevel(logging.WARNING)
    logger.addHandler(collector)
    try:
        yield collector.buffer
    finally:
        logger.removeHandler(collector)
