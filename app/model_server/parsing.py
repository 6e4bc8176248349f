"""The command line: `--flag=value`, `--flag value`, and bare `--flag` for true. The last of several is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from app.model_server.flags import FLAGS, Flag, Value

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class UsageError(ValueError):
    """The command line is wrong. The text is one line that says what, and what is expected."""


def parse(arguments: Iterable[str]) -> Mapping[str, Value]:
    """The flags given, by name. Raises UsageError."""
    given: dict[str, Value] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, text = argument.removeprefix("--").partition("=")
        flag = FLAGS.get(name) if argument.startswith("--") else None
        if flag is None:
            close = get_close_matches(name, FLAGS, 1)
            hint = f"; did you mean --{close[0]}?" if close else ""
            raise UsageError(f"unknown argument: {argument[:256]}{hint}")
        if isinstance(flag.default, bool) and not equals:
            given[name] = True
            continue
        following = text if equals else next(rest, None)
        if following is None:
            raise UsageError(f"--{name} needs a value")
        given[name] = _read(flag, following)
    return given


def _read(flag: Flag, text: str) -> Value:
    if isinstance(flag.default, str):
        return text
    if isinstance(flag.default, bool):
        if text.lower() not in _BOOLEANS:
            raise _wrong(flag, text, "true or false")
        return _BOOLEANS[text.lower()]
    try:
        number = type(flag.default)(text)
    except ValueError:
        expected = "a whole number" if isinstance(flag.default, int) else "a number"
        raise _wrong(flag, text, expected) from None
    if flag.least is not None and number < flag.least:
        raise _wrong(flag, text, f"at least {flag.least:g}")
    if flag.most is not None and number > flag.most:
        raise _wrong(flag, text, f"at most {flag.most:g}")
    return number


def _wrong(flag: Flag, text: str, expected: str) -> UsageError:
    return UsageError(f"--{flag.name} is {text[:256]!r}, but should be {expected}")
