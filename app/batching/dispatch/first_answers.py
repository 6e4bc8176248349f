"""The first answers from shared calls whose rows a probe alone proved: each is compared before it is given.

A probe tries values of Ferry's choice. Rows may see each other at those that callers send, such as exact zeros, equal
rows or texts in capitals. So the first requests of such a signature that share calls are computed alone, too. If one
differs, nothing of that call is answered: its requests are run again apart, and the signature shares no calls any more.

Rules (test_first_answers.py)
1. No more than `REQUESTS` of a signature are compared; while they are, none are submitted as one.
2. A signature without a PlainWay is not compared: it writes state, draws random numbers, or a setting forces it.

`differs` runs on a device thread, or where short calls run; the event loop counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from app.batching.dispatch.shadow_check import AGREES, FAILED, RANDOM, Sample, check
from app.batching.function import BatchFunction
from app.batching.request import PendingRequest
from app.core.agreement import TOLERANCES
from app.core.errors import ServingError
from app.core.inference import dtype_name
from app.core.reply import Outcome

#: Chosen: a call of the largest batch and another one; the calls alone take as long as if nothing had been proven.
REQUESTS = 128


class FirstAnswers:
    """Of one signature, all its functions.

    Attributes:
        left: how many requests are still to be compared.
    """

    def __init__(self) -> None:
        self.left = REQUESTS

    def differs(self, function: BatchFunction, requests: Sequence[PendingRequest], outcomes: Sequence[Outcome]) -> str:
        """What changed the answer to one of the requests of a call: 'variant', 'padding', 'sharing'; empty if nothing
        did. Never raises.
        """
        rows = sum([request.rows for request in requests])
        lone = len(requests) == 1 and function.padding is None and function.sizes.padded(rows) == rows
        plain = function.plain
        if plain is None or lone:
            return ""
        scales = _scales(outcomes)
        call_rows, padding = function.sizes.padded(rows), function.padding
        shape = None if padding is None else padding.call_shape([each.inputs for each in requests], call_rows)
        for request, answer in zip(requests, outcomes, strict=True):
            if isinstance(answer, ServingError) or not request.rows:
                continue
            sample = Sample(function, plain, request.inputs, answer, request.rows, call_rows, shape, scales)
            found = check(sample)
            if found not in {AGREES, RANDOM, FAILED}:
                return found
        return ""


def _scales(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """By output, what is large in the answers of the call: differences of sums that cancel out are compared with it."""
    largest: dict[str, list[float]] = {}
    for answer in outcomes:
        for name, output in () if isinstance(answer, ServingError) else answer.items():
            if dtype_name(output.dtype) in TOLERANCES and (finite := np.abs(output[np.isfinite(output)])).size:
                largest.setdefault(name, []).append(float(finite.max()))
    return {name: median(values) for name, values in largest.items()}
