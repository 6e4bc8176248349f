"""Files of Keras models, made by a process of their own: Keras gives warnings, which are errors in tests."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

#: A program that makes a classifier: input `pixels` [?,2], output `score` [?,3], the softmax of pixels times WEIGHTS.
_CLASSIFIER = """
    import sys, numpy as np, keras
    pixels = keras.Input((2,), name="pixels")
    score = keras.layers.Dense(3, activation="softmax", name="score")(pixels)
    model = keras.Model(pixels, score)
    model.layers[-1].set_weights([np.array({weights}, "float32"), np.zeros(3, "float32")])
    model.save(sys.argv[1])
"""

WEIGHTS = [[1.0, 0.0, -1.0], [0.5, 0.25, 0.0]]


def make_classifier(file: Path) -> Path:
    """Writes the classifier to a .keras or .h5 file."""
    program = textwrap.dedent(_CLASSIFIER.format(weights=WEIGHTS))
    subprocess.run([sys.executable, "-c", program, str(file)], check=True, capture_output=True)
    return file
