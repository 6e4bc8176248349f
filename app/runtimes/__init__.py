"""Runtimes, which execute models: TensorFlow, and the threads that call models. Only this package imports tensorflow.

Only server imports it; other packages know it by the interfaces of app/runtime.py, which imports a runtime by its name.
"""

import os

# TensorFlow reads this once, while it is imported, so it is set before every import. 3 shows fatal errors only: others
# are raised, too, and XLA logs three errors as it reads its compiled code from the disk, although nothing is wrong.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
