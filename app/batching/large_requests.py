"""Requests larger than a batch: they are computed in parts and answered as a whole. No I/O, no clock.

A part is cut off when a batch is formed, and fills it. The rest waits behind the requests that came meanwhile, so no
other request waits for more than one part. Once the request is answered, cancelled or expired, or one of its parts has
failed, all its parts count as answered: rows that still wait are not computed.

Where a function is not `divisible`, the outputs of parts cannot be joined. Then `rejoin` puts the whole request in the
place of the first part that is to run alone, and the other parts count as answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.batching.request import PendingRequest
from app.batching.shapes.ragged import RaggedRows
from app.core.errors import InferenceFailed
from app.core.inference import Array, BatchTiming
from app.core.reply import Answer, Outputs


class Parts:
    """The parts of `whole` that were cut off, and their answers.

    Attributes:
        cut_rows: the number of rows that were cut off. They stay in `whole.inputs`, so a cut does not touch the rows
            that remain.
        rejoined: the request is computed as a whole after all; its parts are not waited for.
    """

    def __init__(self, whole: PendingRequest, ragged: RaggedRows | None = None) -> None:
        self.whole = whole
        self._ragged = ragged
        self.cut_rows = 0
        self.rejoined = False
        self._rows: list[int] = []
        self._answers: dict[int, Answer] = {}

    def add(self, rows: int) -> PartReply:
        """The reply of a new part, of the next `rows` rows."""
        self._rows.append(rows)
        self.cut_rows += rows
        return PartReply(self, len(self._rows) - 1)

    def answer(self, part: int, answer: Answer) -> None:
        """Answers the whole request if this was the last missing part."""
        self._answers[part] = answer
        if self.whole.rows or len(self._answers) < len(self._rows):
            return
        try:
            answers = [self._answers[part] for part in range(len(self._rows))]
            whole = join(answers, self._rows, self._ragged)
        except InferenceFailed as error:
            self.fail(error)
        else:
            self.whole.answer(whole)
            self.whole.release()

    def fail(self, error: Exception) -> None:
        """Answers the whole request with the error of a part, or of joining the parts."""
        self.whole.fail(error)
        self.whole.release()


@dataclass(slots=True, eq=False, repr=False)
class PartReply:
    """The reply of one part: it passes the answer on to the whole."""

    parts: Parts
    part: int

    def done(self) -> bool:
        return self.parts.rejoined or self.parts.whole.reply.done()

    def set_result(self, answer: Answer, /) -> None:
        self.parts.answer(self.part, answer)

    def set_exception(self, exception: Exception, /) -> None:
        self.parts.fail(exception)


def cut(
    request: PendingRequest, rows: int, ragged: RaggedRows | None = None, ragged_outputs: RaggedRows | None = None
) -> PendingRequest:
    """Takes the first `rows` remaining rows off `request`. Returns a request of these rows, which answers a part."""
    if request.parts is None:
        request.parts = Parts(request, ragged_outputs)
    parts = request.parts
    inputs = part_of(request.inputs, parts.cut_rows, parts.cut_rows + rows, ragged)
    request.rows -= rows
    reply = parts.add(rows)
    if not request.rows:
        # request and Parts refer to each other: cut the cycle, so that no garbage collection has to.
        request.parts = None
    part = request.part(inputs, rows, reply, request.arrival_s)
    part.room = 0  # the queue counts the room of the whole request only
    return part


def rejoin(part: PendingRequest, leave_lane: Callable[[PendingRequest], object]) -> PendingRequest | None:
    """The whole request of `part`, with all its rows, in place of the part, which is released.

    None if part is an ordinary request, or its whole request is answered or was rejoined already.

    Args:
        leave_lane: takes a request out of its lane, if it still waits there.
    """
    reply = part.reply
    if not isinstance(reply, PartReply) or reply.done():
        return None
    parts = reply.parts
    whole = parts.whole
    leave_lane(whole)
    parts.rejoined = True
    whole.rows += parts.cut_rows
    whole.parts = None
    whole.room = part.room  # leave_lane gave the room of the rows that waited back; whole takes over the part's
    part.release()
    return whole


def part_of(inputs: Mapping[str, Array], start: int, end: int, ragged: RaggedRows | None) -> dict[str, Array]:
    """Rows start to end of the inputs."""
    if ragged is None:
        return {name: array[start:end] for name, array in inputs.items()}
    return ragged.part(inputs, start, end)


def join(answers: Sequence[Answer], part_rows: Sequence[int], ragged: RaggedRows | None = None) -> Answer:
    """The answer to the whole: outputs of all rows, the longest wait, the sum of compute times, the largest batch.

    Raises:
        InferenceFailed: parts of an output have other rows than their inputs, or differ in their inner shape.
    """
    parts = [answer.outputs for answer in answers]
    lengths = {} if ragged is None else ragged.splits
    # The values and splits of ragged outputs, which `ragged` joins.
    names = {each for values, splits in lengths.items() for each in (values, *splits)}
    outputs = {name: _join_rows(name, parts, part_rows) for name in parts[0] if name not in names}
    if ragged is not None:
        rows = sum(part_rows)
        outputs |= ragged.join([{name: part[name] for name in part if name in names} for part in parts], rows, rows)
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
            f"The request has more rows than a batch, and parts of output {name!r} have other rows than their inputs, "
            f"or differ in inner shape: send at most {max(part_rows)} rows"
        )
    return np.concatenate(arrays)
