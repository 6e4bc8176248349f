"""Where the benchmark keeps what it makes: environments, SavedModels, logs. Safe to delete."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("BENCH_CACHE") or Path.home() / ".cache" / "ferry-bench")
