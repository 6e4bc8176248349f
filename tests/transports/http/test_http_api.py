from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

import pytest

from app.core.errors import InvalidRequest, WouldBeLate
from app.core.events import RequestFinished, RequestsRefused
from app.transports.http.exchange import Exchange
from app.transports.http.head import RequestHead
from app.transports.http.http_api import HttpApi
from app.transports.http.rejections import JsonOutline, Rejection
from app.transports.http.replies import ClientGone, HttpOptions, HttpReply
from tests.support.fakes import fake_time, run_in_fake_time
from tests.support.protocol_fakes import scope, scripted


class Answering(HttpApi):
    """Answers with what `reply` makes of the exchange."""

    name: ClassVar[str] = "answering"

    def __init__(self, reply):
        self.events = []
        super().__init__(self.events.append, HttpOptions(100, 30_000.0), fake_time)
        self.reply = reply

    async def answer(self, exchange: Exchange) -> HttpReply:
        return self.reply(exchange)


def ask(protocol, headers=MappingProxyType({})):
    sent = []

    async def send(message):
        sent.append(message)

    run_in_fake_time(protocol(scope("GET", "/a%20b", headers), scripted(), send))
    return sent


def fail(error):
    raise error


def test_a_reply_is_sent_and_told():
    protocol = Answering(lambda exchange: HttpReply(exchange.head.path.encode()))
    start, body = ask(protocol)
    assert (start["status"], body["body"]) == (200, b"/a%20b")
    assert protocol.events == [RequestFinished("answering", "200", "", 0, "", 0.0)]


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [(InvalidRequest("no"), 400, b'{"error":"no"}'), (ValueError("bug"), 500, b'{"error":"Internal error"}')],
)
def test_an_error_is_a_reply(error, status, body):
    protocol = Answering(lambda exchange: fail(error))
    start, sent = ask(protocol)
    assert (start["status"], sent["body"]) == (status, body)
    assert protocol.events[0].code == str(status)


def test_who_is_gone_gets_no_reply():
    protocol = Answering(lambda exchange: fail(ClientGone()))
    assert ask(protocol) == []
    assert protocol.events[0].code == "499"


def test_a_request_that_is_rejected_without_parsing_is_told_as_one_that_would_be_late():
    protocol = Answering(lambda exchange: HttpReply(b""))
    rejection = Rejection.of(WouldBeLate("late").retry_in(1.0), JsonOutline(b"", 0, 0, 0), 0.0, ("m", 1, "f"))
    protocol.rejected(rejection, 0.5, lambda: Exchange(RequestHead("POST", "/", b"", ()), 0.0))
    assert protocol.events == [RequestFinished("answering", "503", "m", 1, "f", 0.5), RequestsRefused("late")]


def test_an_answer_that_is_missing_is_a_bug():
    protocol = HttpApi([].append, HttpOptions(100, 30_000.0))
    protocol.name = "none"
    assert ask(protocol)[0]["status"] == 500


@pytest.mark.parametrize(("given", "seconds"), [({}, 30), ({"X-Request-Timeout-Ms": "1500"}, 1.5),
                                                ({"X-Request-Timeout-Ms": "1e9"}, 30)])  # fmt: skip
def test_deadlines(given, seconds):
    protocol = Answering(lambda exchange: HttpReply(str(protocol.deadline_s(exchange)).encode()))
    assert float(ask(protocol, given)[1]["body"]) == 1000 + seconds


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan", ""])
def test_a_timeout_that_is_none(given):
    protocol = Answering(lambda exchange: HttpReply(str(protocol.deadline_s(exchange)).encode()))
    start, body = ask(protocol, {"X-Request-Timeout-Ms": given})
    assert start["status"] == 400
    assert b"X-Request-Timeout-Ms" in body["body"]
