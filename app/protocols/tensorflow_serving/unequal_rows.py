"""One JSON request whose rows differ in shape: rows of equal shape are one request of the model.

`instances` of 3 and of 2 tokens cannot be one array. Where the model's requests are padded to share a call, these rows
are, too: a group of rows of equal shape is a request of the model, and all groups are submitted in one turn of the
event loop, so they meet in the batcher like requests of several callers. The reply lists the rows in their order in the
request, each of its own length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from app.codecs.row_groups import RowGroup
from app.core.errors import InvalidRequest
from app.core.inference import BatchTiming, InferenceRequest, InferenceResponse, ModelSignature
from app.core.interfaces import Cancellable, Computing, answer_of
from app.core.reply import Answer, Outputs, Reply


@dataclass(slots=True, eq=False)
class UnequalRows:
    """A model for one request with unequal rows, in place of the model itself.

    Args:
        groups: the inputs of each group, [rows, ...], with the places of its rows in the request.

    Attributes:
        outputs: the outputs of each row, in the request's order, without the rows' dimension. Set before the answer.
    """

    model: Computing
    groups: Sequence[RowGroup]
    outputs: list[Outputs] = field(default_factory=list)

    @property
    def signatures(self) -> Mapping[str, ModelSignature]:
        return self.model.signatures

    @property
    def arrays(self) -> Outputs:
        """All arrays of the outputs, named by row and output."""
        return {f"{number} {name}": array for number, row in enumerate(self.outputs) for name, array in row.items()}

    def submit(self, request: InferenceRequest, reply: Reply) -> Cancellable:
        """Submit all groups, or none. `request` has everything but inputs. Raises what the model's `submit` raises."""
        submitted = _SubmittedGroups(self, reply)
        try:
            for number, (_, inputs) in enumerate(self.groups):
                part = replace(request, inputs=inputs)
                submitted.handles.append(self.model.submit(part, _GroupReply(submitted, number)))
        except Exception:
            submitted.cancel()
            raise
        return submitted

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        """`submit`, awaited."""
        return self.response(request, await answer_of(partial(self.submit, request)))

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        return self.model.response(request, answer)


@dataclass(slots=True, eq=False)
class _SubmittedGroups:
    """The groups of one request that the model computes, and their answers."""

    rows: UnequalRows
    reply: Reply
    handles: list[Cancellable] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)

    def cancel(self) -> None:
        for handle in self.handles:
            handle.cancel()

    def answer(self, group: int, answer: Answer) -> None:
        """Note the answer to a group; the answer to the last one answers the request."""
        self.answers[group] = answer
        groups = self.rows.groups
        if len(self.answers) < len(groups):
            return
        try:
            self.rows.outputs = _in_order(groups, [self.answers[number].outputs for number in range(len(groups))])
        except InvalidRequest as error:
            self.reply.set_exception(error)
            return

        # The groups may have been computed one after another, but waited side by side.
        timings = [each.timing for each in self.answers.values()]
        timing = BatchTiming(
            max(each.queue_s for each in timings),
            sum(each.compute_s for each in timings),
            max(each.rows for each in timings),
        )
        self.reply.set_result(Answer({}, timing))


@dataclass(slots=True, eq=False)
class _GroupReply:
    """The Reply of one group. A group whose request is answered is never computed."""

    submitted: _SubmittedGroups
    group: int

    def done(self) -> bool:
        return self.submitted.reply.done()

    def set_result(self, answer: Answer, /) -> None:
        self.submitted.answer(self.group, answer)

    def set_exception(self, exception: Exception, /) -> None:
        self.submitted.reply.set_exception(exception)


def _in_order(groups: Sequence[tuple[Sequence[int], object]], answers: Sequence[Outputs]) -> list[Outputs]:
    """The outputs of each row. Raises InvalidRequest if an output does not have one row for each row of input."""
    rows: dict[int, Outputs] = {}
    for (numbers, _), outputs in zip(groups, answers, strict=True):
        for name, output in outputs.items():
            if output.shape[:1] != (len(numbers),):
                raise InvalidRequest(
                    f"The rows of the request differ in shape, but output {name!r} has no row for each of them: "
                    "send rows of equal shape"
                )
        for index, number in enumerate(numbers):
            rows[number] = {name: output[index, ...] for name, output in outputs.items()}
    return [rows[number] for number in range(len(rows))]
