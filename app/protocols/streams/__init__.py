"""`:predictStream`: a stream of JSON lines in, a stream of predictions out.

Only `protocols/tensorflow_serving` and the OpenAPI page import it.
"""
