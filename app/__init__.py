"""Ferry: model serving for TensorFlow SavedModels."""

__version__ = "0.1.0"
