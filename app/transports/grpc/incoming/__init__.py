"""One call on its stream, from the first frame to the last: its messages, its reply, what it holds, and its end.

`app.transports.grpc.application` makes calls; of the rest of the package only its services import something here.
"""
