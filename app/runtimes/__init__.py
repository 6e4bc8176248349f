"""What executes models: TensorFlow, and the threads that call models. The only package that imports tensorflow.

Only server imports it; other packages know it by the interfaces of app/runtime.py, which imports a runtime by its name.
"""

import os

# TensorFlow reads this once, while it is imported, so it is set before every import. 3 shows fatal errors only: others
# are raised, too, and XLA logs three as it reads compiled code of its own from the disk, although nothing is wrong.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
