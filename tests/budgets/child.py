"""Searches one form in a process with limits, and prints what it found.

python -m tests.budgets.child FORM SEED [FIRST ROUNDS]
"""

from __future__ import annotations

import gc
import json
import resource
import sys

from tests.budgets.forms import FORMS
from tests.budgets.search import worst

_MEMORY_BYTES, _CPU_S = 3 * 1024**3, 120


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    gc.collect()
    gc.disable()  # as the processes that read long bodies do
    found = worst(FORMS[sys.argv[1]](), *map(int, sys.argv[2:]))
    text = f"{found.cost.ns / 1e6:.1f} ms and {found.cost.memory / 1e6:.1f} MB for {found.size} bytes of {found.plan}"
    json.dump({"share": found.share, "text": text}, sys.stdout)


if __name__ == "__main__":
    main()
