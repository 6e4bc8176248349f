"""gRPC over HTTP/2 of our own: calls of a turn are decoded, computed and answered together, without a task for each.

`app.server` chooses between this engine and grpc.aio; nobody else imports it.
"""
