"""Settings that every suite needs before TensorFlow is imported."""

import os
import tempfile

from hypothesis import settings

# TensorFlow's own log would drown pytest's report of a failure.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Choices of execution variants are remembered in the user's cache: not those of tests.
_CACHE = tempfile.TemporaryDirectory(prefix="ferry-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name

# `make schedules`: what has a number of examples of its own takes this one, if it is larger.
settings.register_profile("schedules", max_examples=5000)
