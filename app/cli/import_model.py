"""`ferry import`: a model of another format becomes a version that is served, proven equal to its source."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.failures import one_line_failures
from app.config.sources import SettingsError, load_settings

if TYPE_CHECKING:
    from app.importing.order import ImportOrder
    from app.importing.result import ImportResult


def import_model(  # noqa: PLR0917 - typer makes options of them
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The file or folder of a model.")],
    destination: Annotated[
        Path | None,
        typer.Argument(
            metavar="DEST", help="Folder of the model, or of the version. [default: its name in the models folder]"
        ),
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Another name of an input or output.")
    ] = None,
    inputs: Annotated[
        str, typer.Option("--inputs", metavar="NAMES", help="Tensors that are inputs, of a graph without signatures.")
    ] = "",
    outputs: Annotated[
        str, typer.Option("--outputs", metavar="NAMES", help="Tensors that are outputs, likewise.")
    ] = "",
    accept: Annotated[
        str,
        typer.Option("--accept", metavar="jpeg|text", help="Put the decoding of images, or of text, into the model."),
    ] = "",
    pixels: Annotated[
        str,
        typer.Option("--pixels", metavar="RANGE", help="Pixels for --accept jpeg: 0..255, 0..1, -1..1, caffe, torch."),
    ] = "",
    labels: Annotated[str, typer.Option("--labels", metavar="FILE", help="Names of classes, a line each.")] = "",
    samples: Annotated[
        str,
        typer.Option("--samples", metavar="FILE", help="Inputs to compare with: .npz, .npy, or JSON as for predict."),
    ] = "",
    trust: Annotated[
        bool, typer.Option("--trust", help="Run code that the source holds: lambda layers, custom classes.")
    ] = False,
    limit_s: Annotated[
        float, typer.Option("--limit-s", metavar="SECONDS", min=1, help="Most seconds that it may take.")
    ] = 300.0,
    memory_gib: Annotated[
        float | None,
        typer.Option("--memory-gib", metavar="GIB", min=0.5, help="Most memory. [default: by the source's size]"),
    ] = None,
) -> None:
    """Import a model of another format, and prove that the import answers as its source does.

    It runs in a process without network. The exit code is 0 if the version is written, 1 if it is not, 2 if an
    argument is wrong.
    """
    from app.importing.in_child import kind_or_refusal  # noqa: PLC0415 - `ferry --help` needs none
    from app.importing.order import CannotImport, ImportOrder  # noqa: PLC0415 - `ferry --help` needs none of it
    from app.importing.version_folder import destination_of  # noqa: PLC0415 - `ferry --help` needs none of it
    from app.repository.disk.importable import format_of  # noqa: PLC0415 - `ferry --help` needs none of it

    with one_line_failures(CannotImport):
        settings = load_settings({})
        _check_arguments(source, accept, pixels, {"--labels": labels, "--samples": samples})
        kind = kind_or_refusal(source, format_of(source))
        place = destination_of(source, destination, settings.models)
        order = ImportOrder(
            str(source.absolute()),
            str(place.absolute()),
            _renames(rename or ()),
            _names(inputs),
            _names(outputs),
            accept,
            pixels,
            str(Path(labels).absolute()) if labels else "",
            str(Path(samples).absolute()) if samples else "",
            trust,
            limit_s,
            int((memory_gib or 0) * 2**30),
        )
        result, line = run_import(order, kind, str(place))
    typer.echo(line)
    from app.server.first_lines import command_for  # noqa: PLC0415 - numpy

    url = f"http://localhost:{settings.rest_port}"
    name = place.parent.name
    if accept == "jpeg" and len(result.inputs) == 1:  # the body is the file itself
        command = (
            f"curl --data-binary @image.jpg -H 'Content-Type: image/jpeg' {quote(f'{url}/v1/models/{name}:predict')}"
        )
    else:
        command = command_for(name, json.loads(result.example) if result.example else None, url)
    typer.echo(f"ferry serve --models {quote(str(place.parent.parent))}, then: {command}")


def run_import(order: ImportOrder, kind: str, shown: str) -> tuple[ImportResult, str]:
    """Imports a source: the result, and the line that tells of it. Notes go to standard error. Raises CannotImport.

    Args:
        shown: the import's place, for people.
    """
    from app.importing.in_child import import_in_child  # noqa: PLC0415 - `ferry --help` needs none of it

    begun = time.monotonic()
    with _stages() as report:
        result = import_in_child(order, kind, report)
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    return result, result.line(shown, time.monotonic() - begun)


def _check_arguments(source: Path, accept: str, pixels: str, files: Mapping[str, str]) -> None:
    """Raises SettingsError: an argument is wrong, whatever the source is."""
    if not source.exists() and not list(source.parent.glob(f"{source.name}.*")):  # the common name of a checkpoint
        raise SettingsError(f"there is no file or folder {source}")
    if accept not in {"", "jpeg", "text"}:
        raise SettingsError(f"--accept is {accept!r}, but should be jpeg or text")
    if pixels and accept != "jpeg":
        raise SettingsError(f"--pixels {pixels} needs --accept jpeg")
    for option, file in files.items():
        if file and not Path(file).is_file():
            raise SettingsError(f"{option} is {file!r}, but there is no such file")


def _renames(given: list[str] | tuple[()]) -> dict[str, str]:
    """The new names by the old ones. A name may hold an equals sign as the last part of an old one only."""
    renames = {}
    for each in given:
        old, equals, new = each.rpartition("=")
        if not (old and equals and new):
            raise SettingsError(f"--rename is {each!r}, but should be OLD=NEW")
        renames[old] = new
    return renames


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


@contextmanager
def _stages() -> Iterator[Callable[[str], None]]:
    """A function that shows the present stage on a terminal; nothing is shown elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import

    with Console(stderr=True).status("it begins") as status:
        yield status.update
