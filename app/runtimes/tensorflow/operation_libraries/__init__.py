"""Libraries of operations that TensorFlow has not: which a graph needs, which package has them, and their loading.

The runtime (tensorflow_runtime.py), sharding and the offline signatures call `needed.py`; the operation check asks
`known_libraries.py` what an operation reaches. A library is loaded only if a graph or the setting asks for it.
"""
