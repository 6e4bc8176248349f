"""TensorFlow Serving's API over REST and gRPC: predict, classify, regress, metadata, status, reload.

Only `app.server`, `app.frontends` and `app.protocols.streams` import from here; Open Inference does not know it.
"""
