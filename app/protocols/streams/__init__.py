"""`:predictStream`: a stream of JSON lines in, a stream of predictions out.

Only `app.protocols.tensorflow_serving` imports from here.
"""
