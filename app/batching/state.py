"""The state that the parts of the batcher share, and the settings that it is made with.

The order of making shows the layers: each part knows only parts that were made before it.
1. `BatchingState`: the queue, the devices and the scheduler; above them the isolations, the drain and the admission.
2. `Completion` and `Expiry` end requests; `Executor` has batches executed.
3. `DispatchLoop` starts batches. It registers with what wakes it: the end of a burst, the return of a lent device.
4. `Acceptance` takes requests; `Steps` and `Batcher` are called from outside.
No constructor in this folder has more than seven parameters (tests/batching/test_state.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from app.batching.admission import Admission
from app.batching.devices import Device, DeviceSlots
from app.batching.drain import Drain
from app.batching.isolation import Isolations, Suspects
from app.batching.policy import BatchingPolicy
from app.batching.queue import RequestQueue
from app.batching.scheduler import Scheduler
from app.batching.waiting.callers import Callers
from app.batching.waiting.supplies import Supplies
from app.core.events import Listener

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatcherOptions:
    """The settings of a batcher. They stay as they are while it serves; a model's options may change (policy.py).

    Attributes:
        max_queue_rows, max_queue_bytes: the most that may wait, over all lanes; without rows only bytes count.
        max_inline_s: calls that are known to take less are made on the event loop; 0 for none.
        admission: a request that is expected to miss its deadline is rejected at once.
        weights: by model, its share of the devices' time beside other models'; empty for none.
        preserve_order: the batches of a lane are answered in the order in which they were started.
        fair_callers: the callers whose requests wait share devices and room, however much each sends.
        caller_weights: by caller, the weights that are not 1; the mapping may change.
    """

    max_queue_rows: int
    max_queue_bytes: float = inf
    max_inline_s: float = 0.0
    admission: bool = True
    weights: Mapping[str, float] = field(default_factory=dict)
    preserve_order: bool = False
    fair_callers: bool = False
    caller_weights: Mapping[str, float] = field(default_factory=dict)


class BatchingState:
    """The state of one batcher: its queue, devices, scheduler and listener. Made on the event loop.

    Attributes:
        options, listener, clock: as given; the clock tells monotonic seconds.
        queue: the requests that wait.
        scheduler: chooses the lane of the next batch, and plans it.
        slots: the devices and their batches.
        drain: whether new requests are rejected, and whether an accepted one is left.
        isolations: the requests of rejected batches, which are run again in smaller groups.
        suspects: the callers whose requests share no calls with other callers' requests.
        supplies: the calls that bring work when a device is free.
        admission: rejects requests that would be late, and learns from calls; None if no request is rejected for that.
        failure: the last bug that the batcher met, as a sentence; empty while there was none.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: BatchingPolicy,
        options: BatcherOptions,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self.options, self.listener, self.clock = options, listener, clock
        self.failure = ""

        # The queue, and the calls in flight.
        callers = Callers(options.caller_weights) if options.fair_callers else None
        self.scheduler = Scheduler(policy, options.weights, callers, self.note_failure)
        self.queue = RequestQueue(
            options.max_queue_rows,
            self.scheduler.most_rows,
            options.weights,
            callers=callers,
            max_bytes=options.max_queue_bytes,
        )
        self.slots = DeviceSlots(devices, clock)
        self.supplies = Supplies(self.note_failure)

        # Decisions made by these.
        self.isolations = Isolations(self.queue)
        self.suspects = Suspects()
        self.drain = Drain(self.queue, self.slots, self.isolations)
        admission = Admission(self.queue, self.slots, self.scheduler, self.isolations, clock)
        self.admission = admission if options.admission else None

    def has_waiting(self) -> bool:
        """Whether a request waits in the queue."""
        return self.queue.rows > 0

    def is_busy(self) -> bool:
        """Whether requests need the devices: one waits, or the server drains."""
        return self.queue.rows > 0 or self.drain.begun

    def note_failure(self, what: str, error: Exception) -> None:
        """Records a bug of the batcher, so that it cannot go unnoticed: /livez turns red."""
        logger.exception(what)
        self.failure = f"The batcher failed: {error!r}"
