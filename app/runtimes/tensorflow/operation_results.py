"""The numbers of an operation's results by their names, as TensorFlow's definition of the operation has them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from app.runtimes.tensorflow.private_api import operation_definition

#: Operations whose results are kept. Chosen: there are some 1,500.
_MOST_KNOWN = 2048


def first_result(node: Any, name: str) -> int | None:
    """The number among all results of a node of the first one with this name; None if there is none."""
    number = 0
    for result, count_of, types_of in _results_of(node.op):
        if result == name:
            return number
        number += node.attr[count_of].i if count_of else len(node.attr[types_of].list.type) if types_of else 1
    return None


@lru_cache(_MOST_KNOWN)
def _results_of(operation: str) -> tuple[tuple[str, str, str], ...]:
    """The name of each result, and the attributes that say how many or which tensors it is."""
    definition = operation_definition(operation)
    if definition is None:
        return ()
    return tuple([(each.name, each.number_attr, each.type_list_attr) for each in definition.output_arg])
