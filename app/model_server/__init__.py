"""The command `ferry-model-server`: Ferry with the flags, files and environment of TensorFlow Serving.

It turns them into Ferry's settings; only its own console script imports it.
"""
