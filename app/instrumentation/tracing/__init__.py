"""OpenTelemetry traces: spans of requests that are over, of the batches that served them, and their export.

The SDK is imported when traces are on, and only then. app/server/ and app/frontends/ may import it. exemplars.py needs
none of it: the metrics page has it always.
"""
