"""What executes models. The only package that imports tensorflow."""

import os

# TensorFlow reads this once, while it is imported: here is before every import of it. 2 leaves its errors on.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
