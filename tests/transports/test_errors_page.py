"""docs/errors.md lists every error with the codes that the transports send."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from app.codecs import errors as codecs_errors
from app.config.settings import Settings
from app.core import errors as core_errors
from app.core.errors import ServingError
from app.transports.grpc.codes import GRPC_CODES
from app.transports.grpc.codes import code_of as grpc_code_of
from app.transports.http.replies import CODES
from app.transports.http.replies import code_of as http_code_of

PAGE = (Path(__file__).parents[2] / "docs/errors.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (\d+) \| `(\w+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
HTTP_ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
LISTED = {name for name, *_ in ROWS}


def subclasses(kind: type[ServingError]) -> Iterator[type[ServingError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_error_that_users_see_is_listed_once() -> None:
    defined = {
        each for each in subclasses(ServingError) if each.__module__ in {core_errors.__name__, codecs_errors.__name__}
    }
    assert {each.__name__ for each in {*CODES, *GRPC_CODES, *defined}} == LISTED
    assert len(LISTED) == len(ROWS)


def test_every_row_has_the_codes_that_are_sent() -> None:
    kinds = {each.__name__: each for each in subclasses(ServingError)}
    sent = [(name, str(http_code_of(kinds[name])), grpc_code_of(kinds[name]).name) for name, *_ in ROWS]
    assert [tuple(row[:3]) for row in ROWS] == sent


def test_an_error_that_is_not_listed_answers_as_its_base() -> None:
    for kind in subclasses(ServingError):
        base = next(each for each in kind.__mro__ if each.__name__ in LISTED)
        assert (http_code_of(kind), grpc_code_of(kind)) == (http_code_of(base), grpc_code_of(base))


def test_every_status_that_http_itself_sends_is_listed() -> None:
    transports = Path(__file__).parents[2] / "app/transports"
    files = [*(transports / "http1").glob("*.py"), transports / "http/replies.py"]
    sent = {status for file in files for status in re.findall(r"\bFault\((\d{3}),", file.read_text())}
    assert sent >= {"400", "408", "414", "431", "501", "505"}
    assert [status for status, *_ in HTTP_ROWS] == sorted(sent | {"405", "503"})


def test_limits_stand_there_by_name() -> None:
    """Figures would go stale with the next default."""
    about_http = PAGE.partition("\n## What HTTP itself rejects\n")[2]
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", about_http)) - {"ferry_client"}
    assert named <= set(Settings.model_fields)
    assert {"arrival_timeout_s", "max_head_bytes"} <= named
    assert not re.search(r"\d ?(?:s|KiB|MiB|bytes)\b", about_http)
