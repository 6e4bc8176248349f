"""What frontend and engine send each other: messages on a Unix socket, and large tensors in shared memory.

Imported by `frontends/engine` and `frontends/frontend`, the two ends of a connection.
"""
