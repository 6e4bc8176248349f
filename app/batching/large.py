"""A request larger than a batch: cut into parts that wait in line, answered as a whole. Pure.

The parts share one fate: as soon as the whole is answered (cancelled, expired, a part failed)
each part counts as answered, so what is left of it is never computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from app.batching.batch import Answer, Outputs
from app.batching.queue import Reply
from app.errors import InferenceFailed
from app.inference import Array, BatchTiming


def cut(inputs: Mapping[str, Array], rows: int, max_rows: int) -> Iterator[tuple[Mapping[str, Array], int]]:
    """The inputs of each part and its rows, in order."""
    for start in range(0, rows, max_rows):
        end = min(start + max_rows, rows)
        yield {name: array[start:end] for name, array in inputs.items()}, end - start


class PartReply:
    """Where the answer of one part goes: into the answer of the whole."""

    def __init__(self, whole: Reply, answers: dict[int, Answer], part_rows: Sequence[int], part: int) -> None:
        self._whole = whole
        self._answers = answers
        self._part_rows = part_rows
        self._part = part

    def done(self) -> bool:
        return self._part in self._answers or self._whole.done()

    def cancelled(self) -> bool:
        return self._whole.cancelled()

    def exception(self) -> BaseException | None:
        return self._whole.exception() if self._whole.done() else None

    def set_result(self, answer: Answer, /) -> None:
        self._answers[self._part] = answer
        if len(self._answers) < len(self._part_rows):
            return
        try:
            self._whole.set_result(join([self._answers[part] for part in range(len(self._part_rows))], self._part_rows))
        except InferenceFailed as error:
            self._whole.set_exception(error)

    def set_exception(self, exception: Exception, /) -> None:
        self._whole.set_exception(exception)


def part_replies(whole: Reply, part_rows: Sequence[int]) -> list[PartReply]:
    """A reply for each part, all into `whole`."""
    answers: dict[int, Answer] = {}
    return [PartReply(whole, answers, part_rows, part) for part in range(len(part_rows))]


def join(answers: Sequence[Answer], part_rows: Sequence[int]) -> Answer:
    """The outputs of all rows; the longest wait, the sum of the computing, the largest batch.

    Raises:
        InferenceFailed: the outputs do not follow the rows, or differ in their inner shape.
    """
    outputs = {name: _join_rows(name, [answer.outputs for answer in answers], part_rows) for name in answers[0].outputs}
    timings = [answer.timing for answer in answers]
    return Answer(
        outputs,
        BatchTiming(
            max(timing.queue_s for timing in timings),
            sum(timing.compute_s for timing in timings),
            max(timing.rows for timing in timings),
        ),
    )


def _join_rows(name: str, parts: Sequence[Outputs], part_rows: Sequence[int]) -> Array:
    arrays = [part[name] for part in parts]
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1 or any(array.shape[:1] != (rows,) for array, rows in zip(arrays, part_rows, strict=True)):
        raise InferenceFailed(
            f"The request has more rows than a batch, and the parts of output {name!r} do not fit together: "
            f"send at most {part_rows[0]} rows"
        )
    return np.concatenate(arrays)
