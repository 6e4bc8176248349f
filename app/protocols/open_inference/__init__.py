"""The Open Inference Protocol v2 over REST and gRPC, with Triton's extensions; `api.py` has the operations of both.

Only `app.server` and `app.frontends` import from here; TensorFlow Serving's protocol does not know it.
"""
