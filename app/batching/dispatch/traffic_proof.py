"""The proof of rows by traffic: rows that were answered alone are computed together, before any answer comes from that.

A signature that neither its graph nor the probe proved runs alone. Its requests show which values callers send and that
the model accepts them, so a proof is made of them. proof/traffic_trial.py keeps their rows, row_mixes.py computes them
together; this file decides when.

Rules (test_traffic_proof.py)
1. No result of this file answers a request.
2. Mixes take at most `SHARE` of the seconds of all calls and `IDLE_SHARE` of those in which nothing was computed, plus
   `MOST_CREDIT_S` and one mix.
3. A mix begins only when a device is free and nothing waits, unless none was made for `_LATEST_S`. One at a time.
4. The kept rows of all signatures take at most `MOST_BYTES_OF_ALL`.
5. Signatures that write state or draw random numbers take no part: they have no PlainWay. One whose equal plain calls
   differ is settled.
6. A model is not unloaded while a mix of its rows is computed.

`TrafficProofs` lives on the event loop.
"""

from __future__ import annotations

from functools import partial
from math import inf
from weakref import WeakSet

from app.batching.batch import BatchInFlight, Execution
from app.batching.dispatch.row_mixes import compute_mix
from app.batching.dispatch.spare_device import SpareDevice
from app.batching.function import BatchFunction, PlainWay
from app.batching.proof.traffic_trial import IS_RANDOM, VARIANT, Mix, MixResult, TrafficTrial
from app.core.errors import ServingError
from app.core.events import Listener, RowsTried

#: The share of mixes in the seconds of all calls, and in idle seconds. Chosen: a proof is made once, and callers of
#: a signature that runs alone wait longer until it is there.
SHARE, IDLE_SHARE = 0.02, 0.25

#: Seconds of mixes that may be saved up, and that are there at the beginning. Chosen.
MOST_CREDIT_S = 1.0

#: Seconds after which a mix is made although requests wait. Chosen: about 20 mixes lead to the first proof.
_LATEST_S = 0.25

#: The bytes that are kept of all signatures. Chosen.
MOST_BYTES_OF_ALL = 128 << 20

_VARIANTS_DIFFER = "its execution answers otherwise than the plain model"


class TrafficProofs:
    """The trials of all signatures: it chooses when rows are tried. Everything here runs on the event loop.

    Args:
        device: lends devices for mixes alone; a server that drains has none to spare.
    """

    def __init__(self, device: SpareDevice, listener: Listener) -> None:
        self._device = device
        self._listener = listener

        # --- the budget ---
        self._credit_s = MOST_CREDIT_S
        self._seen_s = device.last_s = device.clock()
        self._seen_called_s = device.called_s

        # --- trials ---
        self._trials: WeakSet[TrafficTrial] = WeakSet()

    @property
    def bytes(self) -> int:
        """The bytes that are kept of all signatures; at most `MOST_BYTES_OF_ALL`."""
        return sum([each.bytes for each in self._trials])

    def observe(self, batch: BatchInFlight, execution: Execution) -> None:
        """Keeps rows of a batch that was executed and is not answered yet, if its signature is on trial."""
        # 1. Is there a trial?
        seconds = execution.ended_s - execution.started_s
        self._earn()
        function = batch.function
        trial = function.trial
        if trial is None or execution.rejection is not None:
            return
        if trial.ended:
            function.trial = None
            return
        if function.plain is None:  # a shadow check found that equal calls differ
            trial.disprove(IS_RANDOM)
            return

        # 2. Rows of its requests are kept.
        self._trials.add(trial)
        room = MOST_BYTES_OF_ALL - self.bytes
        for request, outcome in zip(batch.requests, execution.outcomes, strict=True):
            if not isinstance(outcome, ServingError):
                kept = trial.bytes
                trial.offer(request.inputs, outcome, request.caller, room)
                room -= trial.bytes - kept

        # 3. A mix is computed, if it is time for that.
        call_s = seconds if execution.shared else seconds / len(batch.requests)
        if self._device.is_due(_LATEST_S):
            self._begin(batch.key[:3], function, trial, call_s)

    def _earn(self) -> None:
        """Earns credit by the calls that have ended since it was asked last, and by the idle time between them."""
        now, called_s = self._device.clock(), self._device.called_s
        call_s, self._seen_called_s = called_s - self._seen_called_s, called_s
        idle_s, self._seen_s = max(0.0, now - self._seen_s - call_s), now
        self._credit_s = min(MOST_CREDIT_S, self._credit_s + SHARE * call_s + IDLE_SHARE * idle_s)

    def _begin(
        self, key: tuple[str, int, str], function: BatchFunction, trial: TrafficTrial, call_s: float = 0.0
    ) -> None:
        """Computes the next mix, if there is one, a device and time for it."""
        plain = function.plain
        if self._credit_s < 0 or plain is None or not self._device.lends(function):
            return
        mix = trial.next_mix(call_s)
        if mix is None:
            return
        done = partial(self._done, key, function, trial, plain, mix)
        self._device.begin(function, partial(compute_mix, function, plain, mix), done)

    def _done(  # noqa: PLR0917 - partial, above
        self,
        key: tuple[str, int, str],
        function: BatchFunction,
        trial: TrafficTrial,
        plain: PlainWay,
        mix: Mix,
        result: MixResult,
        seconds: float,
    ) -> None:
        # 1. The budget.
        self._credit_s -= seconds
        self._seen_s = min(self._device.last_s, self._seen_s + seconds)  # this time was not idle

        # 2. The verdict.
        self._listener(RowsTried(*key, mix.size, result.verdict, seconds))
        if result.verdict == VARIANT:
            if VARIANT in function.guilty:
                trial.give_up(_VARIANTS_DIFFER)
            else:
                function.guilty.add(VARIANT)
                plain.stop(VARIANT)
        trial.record(mix, result, seconds)

        # 3. The next mix at once, if no request needs the device.
        if self._device.is_due(inf):
            self._begin(key, function, trial)
