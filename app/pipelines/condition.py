"""Conditions by row: `small.confidence < 0.8 and not max(small.scores) > 0.99`.

A condition has comparisons of references, numbers and strings, joined by and, or, not and parentheses. `max`, `min`,
`sum` and `mean` make one number of a row. A reference whose name is no word is written as `step["name"]`. Nothing else
is allowed: the text is parsed here, and never run as Python.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from app.core.errors import InferenceFailed
from app.core.inference import STRING, Array, TensorSpec
from app.pipelines.references import PipelineInvalid, Reference

#: Computes one value for each row out of the rows' values.
Evaluate = Callable[[Mapping[Reference, Array]], Any]

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"max": np.max, "min": np.min, "sum": np.sum, "mean": np.mean}

_EXPECTED = "a comparison such as 'step.output < 0.8', joined by and, or, not"

_ONE_VALUE = "which should have one value for each row: max(), min(), sum() and mean() make one of several"

#: Letters of a condition. Chosen.
_MOST_LETTERS = 1000


class Condition:
    """A parsed condition.

    Attributes:
        references: the values that it reads.
        reduced: the references that a function reduces to one number a row; the others must have one value a row.
    """

    def __init__(self, text: str) -> None:
        """Reads the text of a condition. Raises PipelineInvalid."""
        self.text = text
        self.references: dict[Reference, None] = {}
        self.reduced: set[Reference] = set()
        self._plain: set[Reference] = set()
        self._compared: list[tuple[ast.expr, ast.expr]] = []
        if len(text) > _MOST_LETTERS:
            raise PipelineInvalid(f"'when' has {len(text)} letters, but should have at most {_MOST_LETTERS}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            self._holds = self._truth(tree)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            raise self._not_understood(text) from None

    def holds(self, values: Mapping[Reference, Array]) -> Array:
        """The rows for which the condition holds: bool [rows]. NaN compares as false, except by `!=`."""
        with np.errstate(over="ignore", invalid="ignore"):  # a number may be too large for the rows' type
            mask: Array = np.asarray(self._holds(values), bool)
        return mask

    def check(self, specs: Mapping[Reference, TensorSpec]) -> None:
        """Raises PipelineInvalid if the condition cannot read such rows. Rows of unknown rank are checked as they come.

        Args:
            specs: of each of its references.
        """
        for reference in self.references:
            spec = specs[reference]
            if reference in self.reduced and (spec.dtype == STRING or spec.dtype.kind == "c"):
                raise PipelineInvalid(
                    f"'when' takes the greatest, least, sum or mean of {reference}, which has no numbers"
                )
            if reference in self._plain and spec.shape is not None and any(size != 1 for size in spec.shape[1:]):
                raise PipelineInvalid(f"'when' compares {reference}, {_ONE_VALUE}")
        for left, right in self._compared:
            if self._is_text(left, specs) != self._is_text(right, specs):
                raise PipelineInvalid(
                    f"'when' compares {ast.unparse(left)} with {ast.unparse(right)}: one is a number, the other is text"
                )

    def _is_text(self, node: ast.expr, specs: Mapping[Reference, TensorSpec]) -> bool:
        match node:
            case ast.Constant(value=value):
                return isinstance(value, str)
            case ast.Call() | ast.UnaryOp():
                return False
        return specs[self._reference(node)].dtype == STRING

    def _truth(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.BoolOp(op=op, values=parts):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                truths = [self._truth(part) for part in parts]
                return lambda values: join.reduce([truth(values) for truth in truths])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self._truth(operand)
                return lambda values: np.logical_not(truth(values))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                if _is_constant(left) and _is_constant(right):
                    raise self._not_understood(ast.unparse(node))
                compare, first, second = _COMPARISONS[type(op)], self._value(left), self._value(right)
                self._compared.append((left, right))
                return lambda values: compare(first(values), second(values))
        raise self._not_understood(ast.unparse(node))

    def _value(self, node: ast.expr) -> Evaluate:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                float(number)  # it raises OverflowError
                return lambda _: number
            case ast.Constant(value=str(text)):
                data = np.array(text.encode(), STRING)
                return lambda _: data
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                float(number)
                return lambda _: -number
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
                reduce, reference = _FUNCTIONS[name], self._reference(argument)
                self.reduced.add(reference)
                return lambda values: _by_row(reduce, values[reference])
        reference = self._reference(node)
        self._plain.add(reference)
        return lambda values: _single(values[reference], reference)

    def _reference(self, node: ast.expr) -> Reference:
        match node:
            case ast.Name(id=name):
                reference = Reference("", name)
            case ast.Attribute(value=ast.Name(id=step), attr=name):
                reference = Reference(step, name)
            case ast.Subscript(value=ast.Name(id=step), slice=ast.Constant(value=str(name))):
                reference = Reference(step, name)
            case _:
                raise self._not_understood(ast.unparse(node))
        self.references[reference] = None
        return reference

    def _not_understood(self, part: str) -> PipelineInvalid:
        return PipelineInvalid(f"'when' has {part!r}, but should be {_EXPECTED}")


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _single(rows: Array, reference: Reference) -> Array:
    if rows.size != len(rows):
        raise InferenceFailed(f"'when' compares {reference}, {_ONE_VALUE}")
    return rows.reshape(-1)


def _by_row(reduce: Callable[..., Any], rows: Array) -> Any:
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    return reduce(flat, axis=1) if flat.shape[1] else np.full(len(rows), np.nan)
