"""Requests that an ASGI application answers: the scope it is told, the body it receives, the response it sends.

Only the connection (`app.transports.http1`) imports from here.
"""
