"""The fast path: requests that a connection answers itself, without ASGI, and what makes that cheap for many of them.

The connection and its server (`app.transports.http1`) import from here, and `app.server`, which chooses the protocols.
"""
