"""TensorFlow Serving's API over REST and gRPC: predict, classify, regress, metadata, status, reload.

Only server, frontends and the OpenAPI page import it; it does not import Open Inference.
"""
