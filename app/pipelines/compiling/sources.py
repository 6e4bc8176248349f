"""The sources of rows: a list of references, of which the first that has a row counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.pipelines.references import PipelineInvalid, Reference, parse_reference


class Sources(NamedTuple):
    """References, and perhaps a number for the remaining rows."""

    references: Sequence[Reference]
    rest: Any = None


def parse_sources(sources: Sequence[str | float]) -> Sources:
    """The sources in a list of the text. Raises PipelineInvalid."""
    texts = [each for each in sources if isinstance(each, str)]
    rest = None if isinstance(sources[-1], str) else sources[-1]
    if not texts or len(texts) < len(sources) - (rest is not None):
        raise PipelineInvalid(
            "a number may only be the last of a list, after a step.output or an input: [step.output, 0.5]"
        )
    return Sources([parse_reference(each) for each in texts], rest)


def check_order(sources: Sources, is_total: Callable[[Reference], bool]) -> None:
    """Raises PipelineInvalid if a reference stands behind one that has all rows: it would never be used.

    Args:
        is_total: whether a reference has a value for every row.
    """
    for first, second in zip(sources.references, sources.references[1:], strict=False):
        if is_total(first):
            raise PipelineInvalid(
                f"{second} is never used, as {first}, which stands before it, has all rows: put it first"
            )
