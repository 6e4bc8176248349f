"""TensorFlow as a runtime. app/runtime.py imports start.py by name; nobody else imports this package,
except app/server for the default folder of variant_cache.py.
"""
