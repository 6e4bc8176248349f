"""The library h2 as a client's side of HTTP/2."""

from __future__ import annotations

from typing import Any

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, ConnectionState, H2Connection


def client_connection() -> H2Connection:
    """One that sends what h2 itself would not, and goes on after a GOAWAY, as RFC 9113, section 6.8, has it."""
    connection = H2Connection(
        H2Configuration(
            client_side=True,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            split_outbound_cookies=False,
        )
    )
    open_ = ConnectionState.CLIENT_OPEN
    machine: Any = connection.state_machine
    machine._transitions = {**machine._transitions, (open_, ConnectionInputs.RECV_GOAWAY): (None, open_)}
    return connection
