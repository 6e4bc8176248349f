"""Bytes on sockets: HTTP/1.1, HTTP/2, what all of HTTP shares, gRPC. For protocols, server, frontends, model_server."""

#: After the drain only replies that are being written are left; HTTP and gRPC give them this many seconds. Chosen.
CLOSE_TIMEOUT_S = 5

#: The most seconds from the end of the drain to that of the process, beside the grace: the last connections of gRPC
#: are made (0.5 s) and hear of the end (3 s), requests that are arriving are accepted, late ones rejected, the last
#: connections of HTTP made, and answered (0.5 s each), HTTP and gRPC close, models end. http_server.py has the steps.
CLOSING_S = 3 + 5 * 0.5 + 3 * CLOSE_TIMEOUT_S
