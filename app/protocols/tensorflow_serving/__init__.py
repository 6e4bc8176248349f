"""TensorFlow Serving's API over REST and gRPC: predict, classify, regress, metadata, status, reload.

Only `app.server`, `app.frontends` and the OpenAPI page import from here; Open Inference does not know it.
"""
