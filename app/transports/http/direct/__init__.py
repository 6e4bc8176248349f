"""The fast path of each version of HTTP: requests that a connection answers itself, without ASGI, many of them at once.

The connections (`app.transports.http1`, `app.transports.rest_http2`) import from here, and `app.server`, which chooses
the protocols.
"""
