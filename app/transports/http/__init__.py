"""What HTTP protocols share, whichever way a request arrives: replies, bodies, time-outs, events, rejections.

Protocols, server, frontends and `transports/http1` import it.
"""
