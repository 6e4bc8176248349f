from __future__ import annotations

from app.frontends.supervisor import END_WITHIN_S
from app.server.engine import _UNLOAD_TIMEOUT_S
from app.transports import CLOSE_TIMEOUT_S, CLOSING_S
from app.transports.closing_listener import _HANDSHAKES_S
from app.transports.grpc.own.server import _LAST_CALL_S
from app.transports.http1.uvicorn_adapter import _LINGER_S


def test_a_process_that_uses_all_its_time_to_end_is_not_killed() -> None:
    """Of the steps in http_server.py: gRPC's clients hear of the end, HTTP's are answered, both close, models end."""
    grpc_hears, http_listens = _HANDSHAKES_S + _LAST_CALL_S, _HANDSHAKES_S + 3 * _LINGER_S
    assert grpc_hears + http_listens + 2 * CLOSE_TIMEOUT_S + _UNLOAD_TIMEOUT_S == CLOSING_S
    assert END_WITHIN_S > CLOSING_S
