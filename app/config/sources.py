"""The sources of settings, and the error texts of wrong ones.

Three sources, strongest first: command-line flags, `FERRY_*` environment variables, a YAML file named by
`FERRY_CONFIG` (or `--config`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, YamlConfigSettingsSource

from app.config.settings import PREFIX, Settings

CONFIG_VARIABLE = "FERRY_CONFIG"

#: Kubernetes puts the addresses of a Service named "ferry..." into every pod's environment.
_SERVICE_LINK = re.compile(
    r"\w+_SERVICE_(HOST|PORT(_\w+)?)=.*|\w+_PORT(_\w+)?_(PROTO|PORT|ADDR)=.*|\w+=(tcp|udp|sctp)://.*"
)

#: Settings of 0.1.0 that are gone, and what to set instead; empty for a constant of today.
_REPLACED = {
    "admin_port": "operator_port", "admin_grpc_port": "operator_port",
    "forbidden_variants": "execution_variant", "max_headers": "",
}  # fmt: skip


class SettingsError(ValueError):
    """A setting is wrong. The text is one line that names it as the user gave it, its value and what is expected."""


def load_settings(overrides: Mapping[str, Any], config: Path | None = None) -> Settings:
    """The settings, from flags, environment and file.

    Args:
        overrides: the flags given, by setting name.
        config: the YAML file; None takes the one that FERRY_CONFIG names, if any.

    Raises:
        SettingsError: a value, a name or the file is wrong.
    """
    file = config or (Path(named) if (named := os.environ.get(CONFIG_VARIABLE)) else None)
    _reject_unknown_variables()
    # The readers of pydantic-settings need the fields of a model, and no more of what their annotations ask for.
    read = EnvSettingsSource(Settings, env_prefix=PREFIX, env_ignore_empty=True)  # type: ignore[arg-type]  # it is a model
    from_environment = read()
    from_file = _read_file(file) if file else {}
    try:
        return Settings(**{**from_file, **from_environment, **overrides})
    except ValidationError as error:
        names = {
            **{name: f"{name} in {file}" for name in from_file},
            **{name: variable(name) for name in from_environment},
            **{name: flag_of(name) for name in overrides},
        }
        raise SettingsError("; ".join(_explain(each, names) for each in error.errors())) from None


def flag_of(name: str) -> str:
    """A setting's name on the command line."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """A setting's name in the environment."""
    return PREFIX + name.upper()


def _reject_unknown_variables() -> None:
    known = [*Settings.model_fields, "config"]
    for variable_name, value in sorted(os.environ.items()):
        name = variable_name.lower()
        if not name.startswith(PREFIX.lower()) or _SERVICE_LINK.match(f"{variable_name}={value}"):
            continue
        name = name.removeprefix(PREFIX.lower())
        if name not in known:
            raise SettingsError(f"{variable_name} is not a setting of Ferry{_meant(name, known, variable)}")


def _read_file(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise SettingsError(f"The settings file {file} does not exist")
    try:
        values = YamlConfigSettingsSource(Settings, yaml_file=file)()  # type: ignore[arg-type]  # it is a model
    except Exception as error:  # the YAML reader has no common base of its errors
        raise SettingsError(f"The settings file {file} is not a YAML mapping: {' '.join(str(error).split())}") from None
    for name in values:
        if name not in Settings.model_fields:
            raise SettingsError(f"{name} in {file} is not a setting of Ferry{_meant(str(name), Settings.model_fields)}")
    return values


def _explain(error: ErrorDetails, names: Mapping[str, str]) -> str:
    """The text of one wrong value: its name as the user gave it, the value, and what it should be."""
    name = str(error["loc"][0])
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ").partition(", unable to")[0]
    where = names.get(name, f"The default of {name}")
    if error["type"] == "extra_forbidden":
        return f"{where} is not a setting of Ferry{_meant(name, Settings.model_fields)}"
    if error["type"] == "string_pattern_mismatch":
        expected = f"text that matches {error['ctx']['pattern']}"
    return f"{where} is {error['input']!r}, but should be {expected}"


def _meant(name: str, known: Iterable[str], spell: Callable[[str], str] = str) -> str:
    meant = _REPLACED[name] if name in _REPLACED else next(iter(get_close_matches(name, known, 1)), "")
    return f"; did you mean {spell(meant)}?" if meant else "; remove it: docs/settings.md lists them all"
