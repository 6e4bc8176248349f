"""What HTTP protocols share, whichever way a request arrives: replies, bodies, time-outs, events, rejections.

Protocols, server, frontends, `transports/http1` and `transports/rest_http2` import it; it imports neither of these two.
"""
