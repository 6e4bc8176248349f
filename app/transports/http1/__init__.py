"""HTTP/1.1 on sockets: connections that answer inference requests themselves and leave all others to uvicorn.

Only `app.server` imports from here.
"""
