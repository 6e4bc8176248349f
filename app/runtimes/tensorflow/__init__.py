"""TensorFlow as a runtime. app/runtime.py imports start.py by name.

Beside it only app/server imports this package, for the default folder of variant_cache.py.
"""
