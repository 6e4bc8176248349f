"""`ferry-model-server`, alias `tensorflow_model_server`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from app import __version__
from app.core.errors import ServingError
from app.model_server.flags import FLAGS, Flag, Value
from app.model_server.parsing import UsageError, parse

NAME = "ferry-model-server"
ALIAS = "tensorflow_model_server"


def run(command: Sequence[str]) -> int:
    """Run a command line, program included. The exit code is 2 if it is wrong, 1 if the server cannot start."""
    path, *arguments = command
    program = NAME if Path(path).name == "__main__.py" else Path(path).name
    if arguments[:1] == ["install-alias"]:
        return _install_alias(path, program, arguments[1:])
    if "--help" in arguments:
        sys.stdout.write(usage(program))
        return 0
    try:
        given = parse(arguments)
    except UsageError as error:
        return _fail(f"{program}: {error}", 2)
    if given.get("version"):
        sys.stdout.write(_versions())
        return 0
    for name in given:
        if FLAGS[name].idle:
            sys.stderr.write(f"Warning: --{name} does nothing here: {FLAGS[name].meaning}\n")
    return _serve(given)


def usage(program: str) -> str:
    lines = [f"usage: {program} [--flag=value ...]", f"       {program} install-alias FOLDER", "Flags:"]
    for flag in FLAGS.values():
        lines.append(f"  --{flag.name}={default_text(flag)}")
        lines.append(f"      {'Does nothing here: ' if flag.idle else ''}{flag.meaning}")
    return "\n".join(lines) + "\n"


def default_text(flag: Flag) -> str:
    """The default as it is written on a command line."""
    return str(flag.default).lower() if isinstance(flag.default, bool) else str(flag.default)


def _serve(flags: Mapping[str, Value]) -> int:
    from app.config.sources import SettingsError, load_settings, variable  # noqa: PLC0415 - takes long
    from app.frontends.supervisor import supervise  # noqa: PLC0415 - takes long
    from app.model_server.grpc_flags import grpc_options_of  # noqa: PLC0415 - takes long
    from app.model_server.options import DIFFERENCES, from_environment, models_of, settings_of  # noqa: PLC0415 - takes long
    from app.server.grpc_servers import grpc_options  # noqa: PLC0415 - takes long
    from app.server.single_process import serve  # noqa: PLC0415 - takes long
    from app.transports.tls.texts import TlsError  # noqa: PLC0415 - takes long

    given = {**from_environment(os.environ), **flags}
    differences = {name: value for name, value in DIFFERENCES.items() if not os.environ.get(variable(name))}
    try:
        models = models_of(given)
        settings = load_settings({**differences, **settings_of(given)})
        grpc = grpc_options_of(given, grpc_options(settings))
    except (ServingError, SettingsError, TlsError, OSError) as error:
        return _fail(f"Failed to start server. Error: {error}", 1)
    if settings.frontends:
        return supervise(settings, "app.model_server.engine_process", "app.model_server.frontend_process", given)
    return serve(settings, models, grpc)


def _install_alias(path: str, program: str, arguments: Sequence[str]) -> int:
    """Link `tensorflow_model_server` in a folder to the program at `path`, for scripts that call that name."""
    target = shutil.which(path)
    if len(arguments) != 1 or target is None:
        return _fail(f"usage: {program} install-alias FOLDER", 2)
    alias = Path(arguments[0]) / ALIAS
    try:
        alias.symlink_to(Path(target).absolute())
    except OSError as error:
        return _fail(f"{alias}: {error.strerror}", 1)
    return 0


def _versions() -> str:
    lines = [f"TensorFlow ModelServer: Ferry {__version__}"]
    for package in ("tensorflow", "tensorflow-cpu"):
        try:
            lines.append(f"TensorFlow Library: {version(package)}")
            break
        except PackageNotFoundError:
            continue
    return "\n".join(lines) + "\n"


def _fail(text: str, code: int) -> int:
    sys.stderr.write(" ".join(text.split()) + "\n")
    return code
