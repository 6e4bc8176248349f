"""LiteRT as a runtime: it serves `model.tflite`, on the CPU. app/runtime.py imports litert_runtime.py by name.

Nothing here imports LiteRT before a model is loaded, and nothing imports TensorFlow.
"""
