"""`make bench`: Ferry beside its peers. Options are those of `python -m bench.peers`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parent.parent)  # `bench` is a package of this folder

from bench.peers.__main__ import main  # noqa: E402 - found only now

if __name__ == "__main__":
    main()
