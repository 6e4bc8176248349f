"""The reply of one step, by which its flow goes on."""

from __future__ import annotations

from typing import Protocol

from app.core.reply import Answer
from app.pipelines.plan import StepPlan


class HasSteps(Protocol):
    """A flow."""

    @property
    def unwanted(self) -> bool: ...

    def answered(self, step: StepPlan, answer: Answer, elements: int) -> None: ...

    def failed(self, step: StepPlan, error: Exception) -> None: ...


class StepReply:
    """The Reply of one step.

    Args:
        elements: the elements of a row, if the step has `each`; else 1.
    """

    __slots__ = ("_elements", "_flow", "_over", "_step")

    def __init__(self, flow: HasSteps, step: StepPlan, elements: int) -> None:
        self._flow = flow
        self._step = step
        self._elements = elements
        self._over = False

    def done(self) -> bool:
        return self._over or self._flow.unwanted

    def set_result(self, answer: Answer, /) -> None:
        self._over = True
        self._flow.answered(self._step, answer, self._elements)

    def set_exception(self, error: Exception, /) -> None:
        self._over = True
        self._flow.failed(self._step, error)
