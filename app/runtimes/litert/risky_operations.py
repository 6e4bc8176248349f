"""Operations of LiteRT 2.3 that end the process for some values of a request, since they do not check them.

Found by calling 110 small files, one for each operation and kind of operand, with values such as -1 and the least whole
number. An operand that no request can change is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from app.runtimes.litert.tflite_file import TFLiteFile, TFLiteFileError, TFLiteGraph

# Numbers of types and operations in the schema.
_INT32, _INT64 = 2, 4
_SHAPE, _RANK = 77, 110


class _Risk(NamedTuple):
    """An operation, the operand that it does not check, the types of its first operand, and what ends the process."""

    name: str
    operand: int
    dtypes: frozenset[int]
    why: str


_RISKS: Mapping[int, _Risk] = {
    95: _Risk("FLOOR_MOD", 1, frozenset({_INT32, _INT64}), "the least whole number divided by -1"),
    112: _Risk("REVERSE_SEQUENCE", 1, frozenset(), "a negative length"),
    146: _Risk("RANDOM_STANDARD_NORMAL", 0, frozenset(), "a shape that is none"),
    148: _Risk("RANDOM_UNIFORM", 0, frozenset(), "a shape that is none"),
}


def check_risks(file: TFLiteFile, allowed: Collection[str]) -> None:
    """Raises TFLiteFileError: an operation may end the process, and is not among the allowed ones."""
    for graph in file.graphs:
        for risk in _risks(graph):
            if risk.name not in allowed:
                raise TFLiteFileError(
                    f"its operation {risk.name} ends the server for some values of a request ({risk.why}); "
                    f"allowed_operations={risk.name} serves it all the same"
                )


def _risks(graph: TFLiteGraph) -> Iterator[_Risk]:
    """The risky operations with an operand that requests can change."""
    fixed = {number for number, tensor in enumerate(graph.tensors) if tensor.constant}
    for operation in graph.operations:  # in the order in which they are executed
        risk = _RISKS.get(operation.code)
        if risk is not None and risk.operand < len(operation.inputs):
            first, operand = operation.inputs[0], operation.inputs[risk.operand]
            if operand not in fixed and (not risk.dtypes or graph.tensors[first].dtype in risk.dtypes):
                yield risk
        if operation.code in {_SHAPE, _RANK} or (operation.inputs and fixed.issuperset(operation.inputs)):
            fixed.update(operation.outputs)
