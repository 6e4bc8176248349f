"""Bytes on sockets: HTTP/1.1, HTTP/2, what all of HTTP shares, gRPC. For protocols, server, frontends, model_server."""

#: After the drain only replies that are being written are left; HTTP and gRPC give them this many seconds. Chosen.
CLOSE_TIMEOUT_S = 5

#: The most seconds from the end of the drain to the end of the process, beside the grace. gRPC's last connections are
#: accepted (0.5 s) and told (3 s). Arriving requests are accepted, late ones rejected, HTTP's last connections accepted
#: and answered (0.5 s each). HTTP, gRPC and the models close. http_server.py has the steps.
CLOSING_S = 3 + 5 * 0.5 + 3 * CLOSE_TIMEOUT_S
