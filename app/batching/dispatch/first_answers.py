"""The first answers from shared calls, where only calls proved the rows: each is compared before it is given.

A probe tries values of Ferry's choice, and traffic brings the values of callers so far. Rows may see each other at
other values: at exact zeros, at large numbers, at texts in capitals. So the first requests of such a signature that
share calls are computed alone, too, and later the first ones of each kind of values. If one answer differs, no answer
of that call is given: its requests are run again one by one, and the signature shares no calls any more.

Rules (test_first_answers.py)
1. Of a signature the first `REQUESTS` are compared, whatever they hold; later only calls that hold a kind of values of
   which fewer than `OF_A_KIND` calls were compared. Kinds are few (proof/kinds_of_values.py), and so are the kept ones.
2. Requests are not submitted as one: the rows of each must be known.
3. A signature without a PlainWay is not compared: it writes state, draws random numbers, or a setting forces it.

`compare` runs on a device thread, or where short calls run; it changes nothing. The event loop counts (`record`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from app.batching.dispatch.shadow_check import AGREES, FAILED, RANDOM, Sample, check
from app.batching.function import BatchFunction, Compared
from app.batching.proof.kinds_of_values import Kind, kinds_of
from app.batching.request import PendingRequest
from app.core.agreement import TOLERANCES
from app.core.errors import ServingError
from app.core.inference import dtype_name
from app.core.reply import Outcome

#: Chosen: a call of the largest batch and another one; the calls alone take as long as if nothing had been proven.
REQUESTS = 128

#: Calls in which each kind of values is compared. Chosen.
OF_A_KIND = 8

#: Kinds whose compared calls are counted: callers choose values, and a signature may have thousands of inputs. Calls
#: with any further kind are always compared. Chosen: some 10 MB.
MOST_KINDS = 1 << 16


class FirstAnswers:
    """The comparisons of one signature, for all its functions.

    Attributes:
        left: the number of requests that are still to be compared, whatever they hold.
    """

    def __init__(self) -> None:
        self.left = REQUESTS
        self._seen: dict[Kind, int] = {}

    def compare(
        self, function: BatchFunction, requests: Sequence[PendingRequest], outcomes: Sequence[Outcome]
    ) -> Compared | None:
        """The comparison of a call with its requests alone; None if none was made. Never raises."""
        # 1. Is there something to compare, and a kind of values that was seldom compared?
        rows = sum([request.rows for request in requests])
        lone = len(requests) == 1 and function.padding is None and function.sizes.padded(rows) == rows
        plain = function.plain
        if plain is None or lone:
            return None
        kinds = frozenset().union(*[kinds_of(request.inputs) for request in requests])
        if self.left <= 0 and all([self._seen.get(kind, 0) >= OF_A_KIND for kind in kinds]):  # noqa: C419 - quicker
            return None

        # 2. Compare each answer with the answer to the request alone, until one differs.
        scales = _scales(outcomes)
        call_rows, padding = function.sizes.padded(rows), function.padding
        shape = None if padding is None else padding.call_shape([each.inputs for each in requests], call_rows)
        for request, answer in zip(requests, outcomes, strict=True):
            if isinstance(answer, ServingError) or not request.rows:
                continue
            found = check(Sample(function, plain, request.inputs, answer, request.rows, call_rows, shape, scales))
            if found not in {AGREES, RANDOM, FAILED}:
                return Compared(len(requests), kinds, found)
        return Compared(len(requests), kinds)

    def record(self, compared: Compared) -> None:
        """Counts the requests and kinds of a comparison."""
        self.left -= compared.requests
        for kind in compared.kinds:
            if kind in self._seen or len(self._seen) < MOST_KINDS:
                self._seen[kind] = self._seen.get(kind, 0) + 1


def _scales(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The scale of each output in the answers of a call, beside which differences of sums that cancel out are small."""
    largest: dict[str, list[float]] = {}
    for answer in outcomes:
        for name, output in () if isinstance(answer, ServingError) else answer.items():
            if dtype_name(output.dtype) in TOLERANCES and (finite := np.abs(output[np.isfinite(output)])).size:
                largest.setdefault(name, []).append(float(finite.max()))
    return {name: median(values) for name, values in largest.items()}
