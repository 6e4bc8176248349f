"""The programs that XLA compiled in this process. TensorFlow keeps compiled code until the process ends.

Rules
1. A program that depends only on the content of the model (on no variable, no table) is kept here and used again when
   the same content is loaded again: reloads take no more memory.
2. After MOST_COMPILED programs nothing is compiled any more in this process, and models run their other variants.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any

from app.core.bounded_cache import BoundedCache

logger = logging.getLogger(__name__)

#: The most programs; each takes 0.1 to 0.3 MB, so all take at most some 600 MB. Chosen.
MOST_COMPILED = 2000

#: The most programs that are kept for another load; each holds constants of up to 1 MB. Chosen.
MOST_KEPT = 256


class TooManyPrograms(Exception):
    """The process has compiled MOST_COMPILED programs, and compiles no more."""


class Programs:
    """Compiled functions by content. May be used from any thread."""

    def __init__(self, most_compiled: int = MOST_COMPILED, most_kept: int = MOST_KEPT) -> None:
        self.compiled = 0
        self.most_compiled = most_compiled
        self._kept: BoundedCache[Hashable, Any] = BoundedCache(most_kept)
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The concrete function of this key, kept or made; it is compiled at its first call.

        Args:
            key: names the program and all that it depends on; None keeps nothing.

        Raises:
            TooManyPrograms: it would have to be compiled.
            Exception: as `make`.
        """
        # 1. A kept program, or the right to compile one more.
        with self._lock:
            if key in self._kept:
                return self._kept.keep(key, self._kept.pop(key))  # the one used last stays longest
            if self.compiled >= self.most_compiled:
                raise TooManyPrograms(
                    f"XLA compiled {self.compiled} programs in this process, and no more are compiled"
                )
            self.compiled += 1
            if self.compiled == self.most_compiled:
                logger.warning(
                    "XLA compiled %d programs in this process; TensorFlow keeps their memory, so what is loaded from "
                    "now on runs without XLA", self.compiled,
                )  # fmt: skip

        # 2. Only a program without variables and tables outlives its model.
        made = make()
        if key is not None and not made.captured_inputs:
            with self._lock:
                self._kept.keep(key, made)
        return made


#: One store for the process, as TensorFlow's.
PROGRAMS = Programs()
