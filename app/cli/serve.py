"""`ferry serve`: each setting in config/settings.py is a flag."""

from __future__ import annotations

from contextlib import ExitStack
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from app.cli.failures import one_line_failures
from app.config.settings import MOST_USED, Settings
from app.config.sources import SettingsError, flag_of, load_settings, variable


def serve(path: Path | None = None, **flags: Any) -> None:
    """Serve the models of a folder, or a model's file or folder, over HTTP and gRPC until SIGTERM.

    PATH is a models folder, the folder of a model or of a version, or a model of another format (.keras, .h5, .pb, ...)
    that 'ferry import' reads: its import is kept in the user's cache folder.

    Each option can also be set in the environment (FERRY_...) or, by its name with underscores,
    in the YAML file. Flags override the environment, which overrides the file.
    """
    config = flags.pop("config")
    given = {name: value for name, value in flags.items() if value is not None}
    if path is None:
        with one_line_failures():
            settings = load_settings(given, config)
        raise typer.Exit(_run(settings))
    from app.cli.served_path import served_path  # noqa: PLC0415 - only with a PATH
    from app.importing.order import CannotImport  # noqa: PLC0415 - only with a PATH

    with ExitStack() as stack:
        with one_line_failures(CannotImport):
            if "models" in given:
                raise SettingsError(f"--models and PATH should not be given both: PATH is {str(path)!r}")
            load_settings({**given, "models": "."}, config)  # a wrong setting is told before an import
            settings = load_settings({**given, "models": stack.enter_context(served_path(path))}, config)
        raise typer.Exit(_run(settings))


class ServeCommand(TyperCommand):
    """The command `ferry serve`, whose help shows the settings most used first, and the others by topic."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # types of typer's own, which are private
        records = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        with formatter.section("Arguments"):
            formatter.write_dl([records["path"]])
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

_PATH = Parameter(
    "path",
    Parameter.POSITIONAL_OR_KEYWORD,
    default=None,
    annotation=Annotated[
        Path | None, typer.Argument(metavar="PATH", help="What to serve, in place of the setting models.")
    ],
)

serve.__signature__ = Signature(  # type: ignore[attr-defined]  # where inspect, and so typer, looks for it
    [_PATH, _CONFIG, *(_option(name, field) for name, field in Settings.model_fields.items())]
)
