"""Groups of requests that one call may compute: by their deadlines and by their rows; and their rows as one request.

A call has the earliest deadline of its requests. So requests share a call only if their deadlines are alike: no request
loses more of its time than `deadlines_alike` allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TypeVar

import numpy as np

from app.core.inference import InferenceRequest

Request = TypeVar("Request")

#: Deadlines that are alike differ by less than this many seconds, and by less than this part of the time that is left.
#: Chosen: reading every socket once takes less than 50 ms.
_DIFFERENCE_S, _DIFFERENCE = 0.05, 0.1


def deadlines_alike(first_s: float, other_s: float, now_s: float) -> bool:
    """Whether requests with these two deadlines, the earlier one first, may share a call.

    All times are monotonic seconds.
    """
    return first_s == other_s or other_s - first_s < min(_DIFFERENCE_S, _DIFFERENCE * (first_s - now_s))


def alike_groups(
    requests: list[Request], deadlines_s: Sequence[float], now_s: float
) -> list[tuple[list[Request], float]]:
    """The requests whose deadlines are alike, by group, each with its earliest deadline.

    Groups and their requests are in order of arrival.

    Args:
        requests: in order of arrival; at least one.
        deadlines_s: of each request.
    """
    # 1. All of them, as nearly always.
    earliest_s = min(deadlines_s)
    if deadlines_alike(earliest_s, max(deadlines_s), now_s):
        return [(requests, earliest_s)]

    # 2. Each group begins with the earliest deadline that is not alike to that of the group before.
    groups: list[tuple[list[int], float]] = []
    for number in sorted(range(len(requests)), key=deadlines_s.__getitem__):
        if groups and deadlines_alike(groups[-1][1], deadlines_s[number], now_s):
            groups[-1][0].append(number)
        else:
            groups.append(([number], deadlines_s[number]))
    in_order = sorted([(sorted(group), first_s) for group, first_s in groups])
    return [([requests[number] for number in group], first_s) for group, first_s in in_order]


def calls_by_rows(rows: Sequence[int], most: int) -> Iterator[slice]:
    """The requests of each call, in as few calls as their order allows.

    Args:
        rows: of each request; at least one request.
        most: rows of a call; a request that has more is alone in its call.
    """
    if sum(rows) <= most:
        yield slice(0, len(rows))
        return
    first, room = 0, most
    for number, each in enumerate(rows):
        if number > first and room < each:
            yield slice(first, number)
            first, room = number, most
        room -= each
    yield slice(first, len(rows))


def split_request(
    request: InferenceRequest, rows: Sequence[int], most: int
) -> Iterator[tuple[slice, InferenceRequest]]:
    """The calls for several requests joined as one: the requests of each call, and their rows. See `calls_by_rows`."""
    end = 0
    for numbers in calls_by_rows(rows, most):
        start, end = end, end + sum(rows[numbers])
        whole = numbers == slice(0, len(rows))
        yield numbers, request if whole else rows_of(request, start, end)


def rows_of(request: InferenceRequest, first: int, end: int) -> InferenceRequest:
    """The request with its rows from `first` to `end`."""
    part = copy(request)
    part.inputs = {name: array[first:end] for name, array in request.inputs.items()}
    return part


def joined_request(requests: Sequence[InferenceRequest]) -> InferenceRequest:
    """One request with the rows of requests of equal form; it has the earliest deadline."""
    joined = copy(requests[0])
    joined.deadline_s = min([request.deadline_s for request in requests])
    joined.inputs = {
        name: np.concatenate([request.inputs[name] for request in requests]) for name in requests[0].inputs
    }
    return joined
