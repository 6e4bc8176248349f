"""SavedModels in memory: their signatures, their functions, their replicas. For tensorflow_runtime.py."""
