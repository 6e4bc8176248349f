"""The HEALTHCHECK of the image: is the server of this container ready? `python -m app.server.health_check`

It knows the ports and TLS by their variables, as the server does. Where there is a port for operators it asks there:
with `tls_client_ca` the other one answers nobody without a certificate. http.client rather than urllib: a proxy in the
environment must not be asked about this container's health.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from collections.abc import Mapping
from contextlib import closing

#: Less than the time-out of the HEALTHCHECK.
_TIMEOUT_S = 4.0


def is_ready(variables: Mapping[str, str]) -> bool:
    """Whether the server is ready. Raises OSError, http.client.HTTPException: the server does not answer."""
    operators = int(variables.get("FERRY_OPERATOR_PORT") or 0)
    port = operators or int(variables["FERRY_REST_PORT"])
    with_tls = bool(variables.get("FERRY_TLS_CERTIFICATE"))
    if operators and variables.get("FERRY_OPERATOR_PORT_TLS") == "off":
        with_tls = False
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    with closing(_https(port) if with_tls else plain) as connection:
        connection.request("GET", "/readyz")
        with connection.getresponse() as reply:
            return reply.status == http.client.OK


def _https(port: int) -> http.client.HTTPSConnection:
    """A connection that checks no certificate, as the kubelet: the server's is for other names than this address."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_S, context=context)


if __name__ == "__main__":
    sys.exit(not is_ready(os.environ))
