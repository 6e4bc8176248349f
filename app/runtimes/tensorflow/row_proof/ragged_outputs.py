"""The verdicts on outputs that are RaggedTensors: values, and row splits for each ragged dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.core.graph_rows import OutputRows
from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Splits, Taint, Value
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, has_space


def ragged_verdicts(values: Mapping[str, Value], ragged: Mapping[str, Sequence[str]]) -> dict[str, OutputRows]:
    """The verdict on each part of the RaggedTensors among outputs, which are proven only together.

    Args:
        values: what is known of each output, by name.
        ragged: the names of the row splits, outermost first, by the name of the values.
    """
    verdicts: dict[str, OutputRows] = {}
    for name, splits in ragged.items():
        parts = [*splits, name]
        verdict = _verdict([values[each] for each in splits], values[name])
        verdicts |= dict.fromkeys(parts, verdict)
    return verdicts


def _verdict(splits: Sequence[Value], values: Value) -> OutputRows:
    for each in (*splits, values):
        if isinstance(each, Taint):
            return OutputRows(each.verdict, each.reason)
    return OutputRows("proven") if _are_rows(splits, values) else OutputRows("unknown", _NOT_FOLLOWED)


_NOT_FOLLOWED = "it is a ragged tensor whose rows are not followed to those of the inputs"


def _are_rows(splits: Sequence[Value], values: Value) -> bool:
    """Whether the outermost rows are those of the inputs, and the values are the entries of the innermost ones."""
    space = ROWS
    for each in splits:
        if not isinstance(each, Splits) or each.of != space:
            return False
        space = each.entries
    if not isinstance(values, Rows) or any(map(has_space, values.shape[1:])):
        return False
    return values.axis == 0 and values.plain and values.space == space
