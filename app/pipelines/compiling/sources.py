"""Where rows come from: a list of references, of which for each row the first counts that has a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.pipelines.references import PipelineInvalid, Reference, parse_reference


class Sources(NamedTuple):
    """References, and perhaps a number for the rows that are left."""

    references: Sequence[Reference]
    rest: Any = None


def parse_sources(sources: Sequence[str | float]) -> Sources:
    """Raises PipelineInvalid."""
    texts = [each for each in sources if isinstance(each, str)]
    rest = None if isinstance(sources[-1], str) else sources[-1]
    if not texts or len(texts) < len(sources) - (rest is not None):
        raise PipelineInvalid(
            "a number may only be the last of a list, after a step.output or an input: [step.output, 0.5]"
        )
    return Sources([parse_reference(each) for each in texts], rest)


def check_order(sources: Sources, is_total: Callable[[Reference], bool]) -> None:
    """Raises PipelineInvalid if one stands behind another that has all rows: it would never be used.

    Args:
        is_total: whether a reference has a value for every row.
    """
    for first, second in zip(sources.references, sources.references[1:], strict=False):
        if is_total(first):
            raise PipelineInvalid(
                f"{second} is never used, as {first}, which stands before it, has all rows: put it first"
            )
