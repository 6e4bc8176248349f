"""One call on its stream, from the first frame to the last: its messages, its reply, what it holds, and its end.

`app.transports.grpc.application` makes calls, and health imports the error that rejects a call; nothing else imports
it.
"""
