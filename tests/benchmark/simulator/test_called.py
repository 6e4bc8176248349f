"""Calls are counted once each, however many replies tell of them."""

from app.bench.load_connection import ServerReply
from bench.simulator.called import Call, Called


def reply(rows: int, compute_ms: str) -> ServerReply:
    return ServerReply(200, {"server-timing": f'queue;dur=0.120, compute;dur={compute_ms}, batch;desc="{rows}"'}, b"")


def test_a_call_has_as_many_replies_as_rows() -> None:
    called = Called()
    for each in [reply(3, "0.850")] * 3 + [reply(1, "2.000")] * 2 + [ServerReply(503, {}, b"")] + [reply(4, "9.000")]:
        called.hear(each, 0.1)
    lone = Call(1, 0.002)
    assert called.calls() == [Call(3, 0.00085), lone, lone, Call(4, 0.009)]
