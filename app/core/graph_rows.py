"""Verdicts on rows from the graph of a signature, for all values that requests may hold (a proof, not a trial).

With f for the model, and a ++ b for the rows of two requests one behind the other: an output is *proven* if
f(a ++ b) = f(a) ++ f(b), within rounding, for all a and b that the model accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

#: 'proven': an output row depends on this row of the inputs alone. 'mixes': it may depend on the other rows, or on
#: their number. 'no rows': it has not one row for each row of the inputs. 'unknown': no rule knows an operation.
Verdict = Literal["proven", "mixes", "no rows", "unknown"]


class OutputRows(NamedTuple):
    """The verdict on one output.

    reason: empty if it is proven; else it names the operation and its node, and says why.
    """

    verdict: Verdict
    reason: str = ""

    @property
    def proven(self) -> bool:
        return self.verdict == "proven"


@dataclass(frozen=True, slots=True)
class GraphRows:
    """The verdicts on one signature.

    outputs: the verdicts on all outputs, by name.
    row_inputs: the inputs that have rows. By the graph all of these must have equally many; empty if nothing is known.
    shared: the inputs without rows, such as a temperature: requests share a call only if their values are equal.
    unequal: whether inputs have first dimensions that need not be equal (nodes and edges): a request is a whole.
    """

    outputs: Mapping[str, OutputRows] = field(default_factory=dict)
    row_inputs: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    unequal: bool = False

    @property
    def proven(self) -> bool:
        """Whether all outputs are proven."""
        return bool(self.outputs) and all(found.proven for found in self.outputs.values())
