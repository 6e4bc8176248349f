"""REST over HTTP/2: its requests become the same exchanges and ASGI calls as those of HTTP/1.1, and coalesce with them.

Only `app.server` imports from here.
"""
