"""Connections of any version of HTTP as their server sees them: limits, closing for new ones, handshakes of TLS.

The connections (`app.transports.http1`, `app.transports.rest_http2`) import from here, and `app.server`.
"""
