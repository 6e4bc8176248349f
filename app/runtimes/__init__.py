"""What executes models: TensorFlow, and the threads that call models. The only package that imports tensorflow.

Only server imports it; other packages know it by the interfaces of app/runtime.py, which imports a runtime by its name.
"""

import os

# TensorFlow reads this once, while it is imported, so it is set before every import. 2 shows TensorFlow's errors only.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
