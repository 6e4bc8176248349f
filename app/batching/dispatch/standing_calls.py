"""Standing calls: calls for work outside the queue (waiting/supplies.py), made at once on the event loop.

A tree that is alone makes a call of few rows for each of its levels, and the steps around such a call take longer than
the model. So these calls have no request, no batch and no lane: 62 us a level instead of 77 beside the model, measured.

Rules (tests/batching/dispatch/test_standing_calls.py)
- The batcher makes one only where it would make an ordinary call at once, too.
- It is learnt from, charged, counted and told as an ordinary call.
- A call that fails, or whose outputs do not follow its rows, has no answer: it is made again as an ordinary call, which
  finds the reason. So a function that may write or draw, which has no PlainWay, is not called here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from app.batching.batch import pad, split
from app.batching.dispatch.executor import Executor
from app.batching.dispatch.shadow_check import ShadowChecks
from app.batching.function import BatchFunction
from app.batching.request import LaneKey
from app.batching.state import BatchingState
from app.core.events import BatchExecuted
from app.core.inference import Array, BatchTiming
from app.core.reply import Answer

logger = logging.getLogger(__name__)


class StandingCalls:
    """The maker of standing calls. Made on the event loop."""

    def __init__(self, state: BatchingState, executor: Executor, shadow: ShadowChecks) -> None:
        self._state = state
        self._clock = state.clock
        self._executor = executor
        self._shadow = shadow

    def compute(
        self, key: LaneKey, function: BatchFunction, inputs: Mapping[str, Array], rows: int, caller: str
    ) -> Answer | None:
        """The answer to `rows` rows; None if an ordinary call has to be made."""
        # 1. Is the call known to be short and of the plain kind, and is none of its requests to be checked?
        costs = function.costs(key.shape)
        if not _suits(function, rows):
            return None
        size = function.sizes.padded(rows)
        if not costs.is_quick(size, self._executor.max_inline_s) or self._shadow.is_due(function):
            return None

        # 2. Call the model.
        made_s = self._clock()
        try:
            padded = inputs if rows == size else {name: pad(array, size) for name, array in inputs.items()}
            began_s = self._clock()
            outputs = function.on(0)(padded)
            got_s = self._clock()
            (answered,) = split(outputs, (rows,), size)
        except Exception:
            return None
        self._executor.inline_ended_s = ended_s = self._clock()

        # 3. Learn from it. An error here must not keep the answer from its request.
        seconds = ended_s - made_s
        try:
            function.record_costs(key.shape, costs)
            costs.record_dispatch(rows, made_s)
            costs.record_undisturbed(size, seconds)
            costs.record_call(size, seconds)
            if self._state.admission is not None:
                self._state.admission.record_seconds(seconds)
            self._state.scheduler.record_call(key.model, caller, rows, seconds)
            self._state.slots.called_s += seconds
            self._state.slots.count_inline(key.model, seconds)
            share = (size - rows) / size
            self._state.listener(
                BatchExecuted(
                    key.model, key.version, key.signature, rows, size - rows, "idle", seconds, (0.0,), 0, 0, 0, share,
                    began_s - made_s, ended_s - got_s,
                )
            )  # fmt: skip
        except Exception:
            logger.exception("A call of %s could not be counted", key)
        return Answer(answered, BatchTiming(0.0, seconds, rows))


def _suits(function: BatchFunction, rows: int) -> bool:
    """Whether calls of the function take rows as they are, have a known cost, and may be made twice."""
    plain = function.padding is None and function.ragged is None and function.ragged_outputs is None
    steady = function.steady and not function.devices and function.plain is not None
    return function.batchable and plain and steady and 0 < rows <= function.max_rows
