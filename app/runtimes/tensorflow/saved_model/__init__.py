"""Reads a SavedModel: its signatures, its functions, its replicas. For tensorflow_runtime.py."""
