"""What HTTP protocols share, whichever way a request arrives: replies, bodies, time-outs, events, rejections.

Protocols, `app.server` and `app.transports.http1` import from here.
"""
