from __future__ import annotations

import logging
from typing import Any

import pytest

from app.transports.access_log import AccessLog
from app.transports.request_id import checked, id_in, shown
from app.transports.request_trace import Ended

LINE: dict[str, Any] = {
    "ended": Ended("rest", "200", ("m", 0, "s"), 1.0, 1.25), "client": "10.0.0.1", "method": "POST",
    "path": "/v1/models/m:predict", "size": 12, "request_id": b"abc",
}  # fmt: skip


@pytest.mark.parametrize(("share", "drawn", "wanted"), [(0.25, 0.24, True), (0.25, 0.25, False), (1.0, 0.999, True)])
def test_a_share_of_the_requests_is_drawn(share: float, drawn: float, wanted: bool) -> None:
    assert AccessLog(share, lambda: drawn).wants() == wanted


def test_without_a_share_there_is_none() -> None:
    assert AccessLog.of(0.0) is None


def test_a_line_is_written_whatever_the_level_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    caplog.handler.setLevel(logging.NOTSET)  # handlers of the log take every level
    AccessLog(1.0).write(**LINE)
    (record,) = caplog.records
    assert record.getMessage() == (
        "POST /v1/models/m:predict 200, 12 bytes, 0.250000 s, client 10.0.0.1, model m version 0, request abc"
    )
    fields = vars(record)
    assert (fields["version"], fields["status"], fields["bytes"]) == (0, "200", 12)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"a-1/~!", b"a-1/~!"), (b"x" * 128, b"x" * 128), (b"x" * 129, b""), (b"a b", b""), (b"", b""), (b"\xe9", b"")],
)
def test_an_id_is_short_and_printable_or_counts_as_none(value: bytes, expected: bytes) -> None:
    assert checked(value) == expected
    assert id_in([(b"host", b"a"), (b"x-request-id", value), (b"x-request-id", b"second")]) == expected


def test_an_id_is_made_where_the_client_sent_none() -> None:
    assert shown(b"abc") == "abc"
    assert len({shown(b"") for _ in range(9)}) == 9
