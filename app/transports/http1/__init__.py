"""HTTP/1.1 on sockets: connections that answer inference requests themselves and all others by ASGI.

Only `app.server` and `app.frontends` import from here.
"""
