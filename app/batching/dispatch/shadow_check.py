"""Shadow checks: now and then a request is computed again as it would be alone, by the plain model, and compared.

A proof at load used values and sizes of Ferry's choice; callers send other ones. If an answer differs, one thing at a
time is changed to find the guilty one, which is not used any more for the signature:
- variant: the execution variant answers otherwise than the plain model for the same inputs;
- padding: the inner shape that the inputs were padded to changes the answer;
- sharing: the other rows of the call change it, also the rows that pad a lone request to a batch size; then neither is
  done any more.

Rules (test_shadow_check.py)
1. Checks take at most `SHARE` of the seconds of all calls, plus one check.
2. A check begins only when a device is free and nothing waits, unless none was made for `_LATEST_S`.
3. At most one request is kept, while it is checked, in copies: its own arrays may be used again.
4. A change that the last digits of the inputs explain is no difference: a value at a border falls to either side.
5. A signature whose plain answers to equal calls differ is not checked any more. A signature that writes state is
   never checked: it has no PlainWay.

`ShadowChecks` lives on the event loop; `check` runs on a device thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from statistics import median
from typing import NamedTuple

import numpy as np

from app.batching.batch import BatchInFlight, Execution
from app.batching.dispatch.spare_device import SpareDevice
from app.batching.function import BatchFunction, PlainWay
from app.core.agreement import TOLERANCES, agree
from app.core.bounded_cache import BoundedCache
from app.core.errors import ServingError
from app.core.events import Listener, ShadowChecked
from app.core.inference import Array, InnerShapes, dtype_name
from app.core.reply import Outputs
from app.core.values.rounding import Rounding

logger = logging.getLogger(__name__)

#: The most that checks take of the seconds of all calls. Chosen.
SHARE = 0.005

#: Seconds after which a check is made although requests wait. Chosen.
_LATEST_S = 60.0

#: Signatures whose scales are kept. Chosen.
_MAX_SIGNATURES = 256

#: Answers of one signature whose largest values make its scales. Chosen.
_SCALES = 16

AGREES, RANDOM, FAILED = "agrees", "random", "failed"
VARIANT, PADDING, SHARING = "variant", "padding", "sharing"

#: The scale of each output: differences of sums that cancel out are small beside it.
Scales = Mapping[str, float]


class Sample(NamedTuple):
    """A request that was answered, in copies, and the call that it was part of.

    own_rows: the rows of the request. rows, shape: of the call; `shape` is None if inner shapes are never padded.
    shared: whether requests could share the call; its function may have ceased to share calls since.
    """

    function: BatchFunction
    plain: PlainWay
    inputs: Mapping[str, Array]
    answer: Outputs
    own_rows: int
    rows: int
    shape: InnerShapes | None
    scales: Scales
    shared: bool = True


def check(sample: Sample) -> str:
    """The verdict on the answer; AGREES if it is right. Blocking; never raises."""
    try:
        return _check(sample)
    except ServingError:
        return FAILED
    except Exception:
        logger.exception("A shadow check failed")
        return FAILED


def _check(sample: Sample) -> str:
    # Alone, as the model answers without Ferry.
    plain = sample.plain.run
    agrees = partial(same, scales=sample.scales, tolerances=sample.plain.tolerances)
    alone = plain(sample.inputs)
    if agrees(alone, sample.answer):
        return AGREES
    if not agrees(alone, plain(sample.inputs)):
        return RANDOM
    if is_rounding(Rounding(plain, sample.plain.tolerances), sample.inputs, alone, sample.answer):
        return AGREES
    return _guilty(sample, alone, agrees) if sample.shared else VARIANT


def _guilty(sample: Sample, alone: Outputs, agrees: Callable[[Outputs, Outputs], bool]) -> str:
    """The guilty thing that changed the answer of a request that shared a call."""
    function, plain = sample.function, sample.plain.run

    # 1. The same rows repeated, as large as the call was, in both ways.
    inputs = _repeated(sample)
    expected = plain(inputs)
    if not agrees(expected, function.run(inputs)):
        return VARIANT

    # 2. Without the padding of the inner shape.
    padding, own_rows = function.padding, sample.own_rows
    if padding is not None and sample.shape is not None:
        unpadded = plain(_repeated(sample._replace(shape=None)))
        cut = padding.cut(_first(expected, own_rows), sample.inputs)
        if agrees(alone, _first(unpadded, own_rows)) and not agrees(alone, cut):
            return PADDING
    return SHARING


def is_rounding(rounding: Rounding, inputs: Mapping[str, Array], alone: Outputs, answer: Outputs) -> bool:
    """Whether answers to inputs that are moved by their last digit differ from the one alone as much as this one."""
    try:
        return not rounding.unexplained(inputs, alone, answer, set(alone))
    except ServingError:  # the model rejects moved inputs
        return False


def _repeated(sample: Sample) -> dict[str, Array]:
    function, inputs = sample.function, sample.inputs
    if function.ragged is not None:
        return function.ragged.join([inputs], sample.own_rows, sample.rows)
    if function.padding is not None and sample.shape is not None:
        return function.padding.join([inputs], sample.rows, sample.shape)
    more = sample.rows - sample.own_rows
    return {name: np.concatenate([array, np.repeat(array[:1], more, 0)]) for name, array in inputs.items()}


def _first(outputs: Mapping[str, Array], rows: int) -> Outputs:
    return {name: output[:rows] for name, output in outputs.items()}


def same(expected: Outputs, actual: Outputs, scales: Scales, tolerances: Mapping[str, float] = TOLERANCES) -> bool:
    """Whether two answers agree within rounding, beside values as large as `scales`."""
    shapes, others = [{name: output.shape for name, output in each.items()} for each in (expected, actual)]
    return shapes == others and agree(_beside(expected, scales), _beside(actual, scales), tolerances)


def _beside(outputs: Outputs, scales: Scales) -> Outputs:
    """The outputs, each with its scale as one more value."""
    return {
        name: np.append(output, np.asarray(scales[name], output.dtype)) if name in scales else output
        for name, output in outputs.items()
    }


class ShadowChecks:
    """The shadow checks of a batcher: which request is checked, and what follows. All of it runs on the event loop.

    Args:
        device: lends devices for checks alone.
    """

    def __init__(self, device: SpareDevice, listener: Listener) -> None:
        self._device = device
        self._listener = listener

        # --- the budget ---
        self._spent_s = 0.0

        # --- the samples ---
        self._observed = count()
        self._scales: BoundedCache[tuple[str, int, str], dict[str, deque[float]]] = BoundedCache(_MAX_SIGNATURES)

    def observe(self, batch: BatchInFlight, execution: Execution) -> None:
        """Checks a request of a batch that was executed and is not answered yet, if it is time for that."""
        plain = batch.function.plain
        if plain is None or not self.is_due(batch.function):
            return
        sample = self._sample(batch, execution, plain)
        if sample is None:
            return
        self._device.begin(batch.function, partial(check, sample), partial(self._done, batch.key[:3], sample))

    def is_due(self, function: BatchFunction) -> bool:
        """Whether one of the requests of the function's next call would be checked."""
        if self._spent_s > SHARE * self._device.called_s or function.plain is None:
            return False
        return self._device.lends(function) and self._device.is_due(_LATEST_S)

    def _sample(self, batch: BatchInFlight, execution: Execution, plain: PlainWay) -> Sample | None:
        place = next(self._observed) % len(batch.requests)
        request, padding = batch.requests[place], batch.function.padding
        answer = None if execution.rejection is not None else execution.outcomes[place]
        if answer is None or isinstance(answer, ServingError) or not request.rows:
            return None
        inputs, outputs = _copied(request.inputs), _copied(answer)
        rows = batch.function.sizes.padded(batch.rows) if execution.shared else 1
        sample = Sample(
            batch.function,
            plain,
            inputs,
            outputs,
            request.rows,
            rows,
            None if padding is None else padding.call_shape([each.inputs for each in batch.requests], rows),
            self._learn_scales(batch, outputs),
            execution.shared,
        )
        if request.coalesced_s:  # one of its rows: the rows of each request are not known here
            sample = sample._replace(inputs=_first(inputs, 1), answer=_first(outputs, 1), own_rows=1)
        return sample

    def _learn_scales(self, batch: BatchInFlight, outputs: Outputs) -> dict[str, float]:
        known = self._scales.get(batch.key[:3]) or self._scales.keep(batch.key[:3], {})
        for name, output in outputs.items():
            if dtype_name(output.dtype) not in TOLERANCES:
                continue
            sizes = np.abs(output[np.isfinite(output)])
            if sizes.size:
                known.setdefault(name, deque(maxlen=_SCALES)).append(float(sizes.max()))
        return {name: median(values) for name, values in known.items()}

    def _done(self, key: tuple[str, int, str], sample: Sample, result: str, seconds: float) -> None:
        self._spent_s += seconds
        guilty = sample.function.guilty
        if result == RANDOM or result in guilty:  # it differs without it, too: this says nothing
            sample.function.plain = None
        elif result in {VARIANT, PADDING, SHARING}:
            guilty.add(result)
            sample.plain.stop(result)
        self._listener(ShadowChecked(*key, result, seconds))


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}
