"""What the caller of a load wants otherwise than the settings say. No I/O."""

from __future__ import annotations

from typing import NamedTuple


class LoadOverrides(NamedTuple):
    """They hold until the model is loaded by a call without them.

    batch_sizes: the row counts that the model is called with, ascending; empty: as the settings say.
    max_batch_delay_ms: how long an idle device waits for more requests; None: as the settings say.
    """

    batch_sizes: tuple[int, ...] = ()
    max_batch_delay_ms: float | None = None


NO_OVERRIDES = LoadOverrides()
