"""Settings that every suite needs before TensorFlow is imported."""

import os

# TensorFlow's own log would drown pytest's report of a failure.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
