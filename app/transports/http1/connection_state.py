"""The states of a connection of HTTP/1.1, and its transitions by the methods that make them.

    IDLE -> HEAD -> BODY -> ANSWERING -> IDLE   by the fast path: _read_request, _begin, _read_body, reply
    IDLE -> HEAD -> ASGI -> IDLE                by the application: _begin_asgi, next_request
    any -> ENDING                               nothing is read as a request any more: reply, end, refuse
    HEAD -> ENDING                              HTTP/2 goes on with the socket: _begin_http2

A head that is recognised skips HEAD, a body that comes with its head skips BODY. After a reply the next request may
be here already (pipelining): then ANSWERING lasts until it is read (`_read_on`).
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The work of a connection now."""

    IDLE = "idle"
    HEAD = "reading a head"
    BODY = "reading a body"
    ANSWERING = "answering"
    ASGI = "answering by ASGI"  # and reading the body
    ENDING = "ending"


#: The states of each request, by shorter names. Measured: to look one up as an attribute of State takes 60 ns more
#: (Python 3.11).
IDLE, ANSWERING = State.IDLE, State.ANSWERING
