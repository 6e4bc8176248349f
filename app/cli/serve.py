"""`ferry serve`: each setting in config/settings.py is a flag."""

from __future__ import annotations

from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from app.cli.failures import one_line_failures
from app.config.settings import MOST_USED, Settings
from app.config.sources import flag_of, load_settings, variable


def serve(**flags: Any) -> None:
    """Serve the models of a folder over HTTP and gRPC until SIGTERM.

    Each option can also be set in the environment (FERRY_...) or, by its name with underscores,
    in the YAML file. Flags override the environment, which overrides the file.
    """
    config = flags.pop("config")
    with one_line_failures():
        settings = load_settings({name: value for name, value in flags.items() if value is not None}, config)
    raise typer.Exit(_run(settings))


class ServeCommand(TyperCommand):
    """The command `ferry serve`, whose help shows the settings most used first, and the others by topic."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # types of typer's own, which are private
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        sections = {"Most used": ["config", *MOST_USED, "help"]}
        for title, names in Settings.by_topic().items():
            sections[title.rstrip(".")] = [name for name in names if name not in MOST_USED]
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names])


def _run(settings: Settings) -> int:
    if settings.frontends:
        from app.frontends.supervisor import supervise  # noqa: PLC0415 - takes long

        return supervise(settings)
    from app.server.single_process import serve as run  # noqa: PLC0415 - this import takes long, `--help` needs none of it

    return run(settings)


def _option(name: str, field: FieldInfo) -> Parameter:
    """The option of a setting. Its value stays text: Settings checks it and says in one line what is wrong."""
    is_switch = field.annotation is bool
    declaration = f"{flag_of(name)}/--no-{flag_of(name)[2:]}" if is_switch else flag_of(name)
    default = field.get_default(call_default_factory=True)
    shown = f"default: {default}, " if default not in ("", [], {}) else ""
    option = typer.Option(
        declaration,
        help=f"{field.description} [{shown}env: {variable(name)}]",
        metavar=None if is_switch else _metavar(field.annotation),
        show_default=False,
    )
    annotation = Annotated[bool | None, option] if is_switch else Annotated[str | None, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _metavar(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    return {int: "NUMBER", float: "NUMBER", Path: "FOLDER"}.get(annotation, "TEXT")


_CONFIG = Parameter(
    "config",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Option("--config", help="YAML file of settings. [env: FERRY_CONFIG]", metavar="FILE")
    ],
)

serve.__signature__ = Signature(  # type: ignore[attr-defined]  # where inspect, and so typer, looks for it
    [_CONFIG, *(_option(name, field) for name, field in Settings.model_fields.items())]
)
