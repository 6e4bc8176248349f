"""`ferry import`: models of other formats become SavedModels that Ferry serves, proven equal to their source.

All of it but `order.py` and `in_child.py` runs in a child process (limits.py says what that may do), which imports
Keras and TensorFlow. Only app/cli imports this package: a server does not.
"""
