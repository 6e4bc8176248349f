"""HTTP/1.1 on sockets: connections that answer inference requests themselves and all others by ASGI.

Only `app.server` and `app.transports.rest_http2` import from here.
"""
