"""Trees whose equal operations share calls across requests: forests, their states, and the order of their nodes.

Plain numpy, and fold.c where it was compiled: no event loop, no clock, no TensorFlow. It imports only app.core.
"""
