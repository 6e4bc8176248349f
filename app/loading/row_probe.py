"""Finds out during loading whether rows see each other: does a row get the same answer in company as alone?

A signature does not say this (a mean over the batch, batch normalisation in training mode and attention over rows look
like any other), so the model is called:
1. Some rows, of several kinds of values, are computed alone: one row, no padding. Their answers are the truth.
2. In calls of two rows each of them stands at both places, beside others, beside its own repetition (as padding rows
   are), and beside extremes: NaN, infinities, strings of unusual lengths. These have answers alone, too.
3. In a call of seven rows, a number that batches are padded from: unpadded it must not mean anything to the model.
4. In one call of the largest size all stand among each other, with repetitions of the first one behind.
5. What differs is computed again with other values: rounding may make one of thousands of answers differ by chance.

A model that rejects a call for its number of rows is tried again in calls of no more than it takes.

An output that differs, or that has no row for each row of the inputs, makes requests that want it run alone. If it is
only rows of NaN or infinity whose own answers differ, requests that hold such numbers run alone. Values or sizes that
the model rejects, and calls that would take longer than the budget, prove nothing; the result names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from app.batching.shapes.ragged import RaggedRows
from app.core.agreement import TF32_TOLERANCES, TOLERANCES, agree
from app.core.batch_sizes import BatchSizes, most_accepted
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import STRING, Array, ModelSignature
from app.core.reply import Outputs
from app.core.sample_inputs import SEED
from app.core.time_budget import OverBudget
from app.core.value_kinds import Reach, inputs_beyond
from app.loading.budgeted_model import BudgetedModel
from app.loading.probe_rows import probe_row, shapes_to_try

Row = Mapping[str, Array]

#: Kinds of values of the rows that are compared, in the order in which they are tried. Whole numbers that are all equal
#: ("ones") make ties, which rounding breaks, so this kind comes last.
_KINDS = ("small", "large", "negative") * 2 + ("ones",) * 2

#: Rows that are compared. Chosen: each kind of value beside each other kind.
_COMPARED = 3

#: Rows of a call that is not padded. Chosen: odd and no batch size, unlike the other calls; and cheap.
_PADDED_FROM = 7

#: What other rows must not notice. A maximum over rows may show infinity alone, and a sum NaN. The length is chosen.
_EXTREMES = {
    "NaN": np.nan,
    "infinite": np.inf,
    "minus infinity": -np.inf,
    "empty": b"",
    "several words": b"some words " * 24,
}

_NO_ROW = "it has no row for each row of the inputs"


class ProbedRows(NamedTuple):
    """What was found of one signature.

    dependent: by output, why requests that want it must run alone.
    unproven: what was not tried, and why; empty if everything was.
    in_budget: false if a call was left out for lack of time or memory: larger batches may differ.
    finite_only: why requests that hold NaN or infinity must run alone; empty if they need not.
    most_rows: the most rows of a call that the model takes; 0 if it took all numbers that were tried.
    """

    dependent: Mapping[str, str]
    unproven: str = ""
    in_budget: bool = True
    finite_only: str = ""
    most_rows: int = 0


class _Limited(Exception):
    """The model takes at most `most_rows` rows in a call."""

    def __init__(self, most_rows: int) -> None:
        super().__init__(f"the model takes at most {most_rows} rows in a call")
        self.most_rows = most_rows


class _NotTried(Exception):
    """A call failed in another way than by a rejection, or was not made."""


def probe_rows(model: BudgetedModel, signature: ModelSignature, sizes: BatchSizes) -> ProbedRows:
    """Whether rows of a batchable signature that writes no state see each other. Never fails."""
    most_rows = signature.most_rows
    while True:
        try:
            found = _Probe(model, signature, sizes.up_to(most_rows or sizes.largest)).find()
        except _Limited as limit:  # less each time
            most_rows = limit.most_rows
        else:
            return found._replace(most_rows=most_rows)


class _Compared(NamedTuple):
    """A row, and its answer alone; None if the model gave none.

    odd: it is all NaN or infinity.
    """

    row: Row
    answer: Outputs | None
    odd: bool = False


class _Company(NamedTuple):
    """Rows of one call.

    any_size: the model may reject that many rows.
    """

    where: str
    rows: Sequence[_Compared]
    any_size: bool = False

    @property
    def acceptable(self) -> bool:
        """Is the model wrong to reject it?"""
        return not self.any_size and all(each.answer is not None for each in self.rows)


class _Probe:
    def __init__(self, model: BudgetedModel, signature: ModelSignature, sizes: BatchSizes) -> None:
        # --- what is probed ---
        self._model = model
        self._signature = signature
        self._sizes = sizes
        self._ragged_inputs = RaggedRows(signature.ragged) if signature.ragged else None

        # --- how ---
        self._random = np.random.default_rng(SEED)
        self._rejected = False  # whether the model rejected the values of the last call
        self._finite_only = ""
        self._unproven: list[str] = []
        self._in_budget = True
        # By row and number of rows; with the row, so that its id stays its own.
        self._repeated: dict[tuple[int, int], tuple[Row, list[Outputs] | None]] = {}

    def find(self) -> ProbedRows:
        # 1. Rows that the model accepts, and their answers alone.
        compared = self._accepted()
        if not compared:
            return ProbedRows({}, "the model rejects the values that it was tried with", self._in_budget)

        # 2. Outputs that have no row for the row, and outputs that differ in equal calls, cannot be compared.
        answer = compared[0].answer or {}
        left = set(answer)
        dependent = {name: _NO_ROW for name in self._signature.outputs if name not in answer}
        again = self._answers([compared[0].row])
        varying = _differing(answer, again[0]) if again else set()
        if self._signature.draws and varying:
            self._unproven.append(f"random numbers change {', '.join(sorted(varying))}")
        else:
            dependent |= dict.fromkeys(sorted(varying), "equal calls of the model give different answers")

        # 3. All others are compared.
        dependent |= self._confirmed(self._found(compared, left - varying))
        return ProbedRows(dependent, "; ".join(dict.fromkeys(self._unproven)), self._in_budget, self._finite_only)

    def _confirmed(self, suspects: dict[str, str]) -> dict[str, str]:
        """The suspects that differ with other values, too; all of them if that could not be tried."""
        if not suspects:
            return {}
        tried = len(self._unproven)
        confirmed = self._found(self._accepted(), set(suspects))
        return confirmed if len(self._unproven) == tried else suspects

    # --- rows ---

    def _accepted(self) -> list[_Compared]:
        """New rows of one shape and of different kinds that the model accepts; empty if it accepts none."""
        for naming, sizes in shapes_to_try(self._signature):
            found: list[_Compared] = []
            for kind in _KINDS:
                row = probe_row(self._signature, naming, sizes, kind, self._random, also_fixed=True)
                if answers := self._answers([row]):
                    found.append(_Compared(row, answers[0]))
                if len(found) == _COMPARED:
                    break
            if found:
                return found
        return []

    def _extremes(self, row: Row) -> Iterator[tuple[str, _Compared]]:
        """The row with an extreme in place of all its floating-point numbers or strings; masks stay.

        If requests with NaN and infinity run alone anyway, these are left out: a loop might never end for them.
        """
        floating = inputs_beyond(self._signature, Reach.FINITE)
        for what, value in _EXTREMES.items():
            odd = not isinstance(value, bytes)
            if odd and self._signature.finite_only:
                continue
            replaced = {
                name: np.full_like(array, value)
                for name, array in row.items()
                if (name in floating if odd else array.dtype == STRING) and name not in self._signature.masks
            }
            if replaced:
                extreme = {**row, **replaced}
                answers = self._answers([extreme])
                if answers or self._rejected:  # what fails alone proves nothing in company
                    yield what, _Compared(extreme, answers[0] if answers else None, odd)

    # --- company ---

    def _found(self, compared: Sequence[_Compared], outputs: set[str]) -> dict[str, str]:
        """Those of the outputs that differ from alone, and where."""
        found: dict[str, str] = {}
        for company in self._companies(compared) if compared and outputs else ():
            answers = self._answers([each.row for each in company.rows])
            if answers is None:
                if self._rejected and company.acceptable:
                    self._check_limit(company.rows[0].row, len(company.rows))
                    found = dict.fromkeys(sorted(outputs), f"the model rejects rows {company.where}") | found
                continue
            for place, (each, answer) in enumerate(zip(company.rows, answers, strict=True)):
                differing = self._from_alone(each, answer, place, len(company.rows)) & outputs - found.keys()
                reason = f"row's answer depends on the other rows {company.where}"
                if differing and each.odd:
                    self._finite_only = self._finite_only or f"such a {reason}"
                elif differing:
                    found |= dict.fromkeys(sorted(differing), f"a {reason}")
        return found

    def _check_limit(self, row: Row, refused: int) -> None:
        """Raises _Limited if the model rejects so many repetitions of a row, and takes fewer, but at least two."""

        def accepts(rows: int) -> bool:
            accepted = self._answers([row] * rows) is not None
            if not (accepted or self._rejected):
                raise _NotTried
            return accepted

        try:
            most_rows = 0 if accepts(refused) else most_accepted(accepts, 1, refused)
        except _NotTried:
            return
        if most_rows > 1:
            raise _Limited(most_rows)

    def _from_alone(self, each: _Compared, answer: Outputs, place: int, count: int) -> set[str]:
        """The outputs whose answer at this place of a call of `count` rows is not the one alone.

        In TF32 the number of rows changes answers by more than rounding does. So the row must answer as it does there
        among repetitions of itself, within rounding, and that as it does alone, within what TF32 explains.
        """
        alone = each.answer or {}
        if not self._signature.tf32:
            return _differing(alone, answer)
        among = self._among_itself(each.row, count)
        if among is None:
            return _differing(alone, answer, TF32_TOLERANCES)
        return _differing(alone, among[place], TF32_TOLERANCES) | _differing(among[place], answer)

    def _among_itself(self, row: Row, count: int) -> list[Outputs] | None:
        key = id(row), count
        if key not in self._repeated:
            self._repeated[key] = row, self._answers([row] * count)
        return self._repeated[key][1]

    def _companies(self, rows: Sequence[_Compared]) -> Iterator[_Company]:
        least, largest = self._sizes.padded(2), self._sizes.largest

        # 1. Each beside the next one, at both places; repetitions of the first behind, if the model takes no two rows.
        for first in range(len(rows)):
            second = (first + 1) % len(rows)
            yield _padded(f"in a call of {least} rows", [rows[first], rows[second]], least)

        # 2. Beside extremes.
        known = list(rows)
        for what, extreme in self._extremes(rows[0].row):
            yield _Company(f"if one of them is {what}", [extreme, *[rows[0]] * (least - 1)])
            if extreme.answer is not None:
                known.append(extreme)

        # 3. By a number of rows that is no batch size: a request that has it is padded, and the model may count rows.
        if largest > _PADDED_FROM > least:
            yield _Company(f"in a call of {_PADDED_FROM} rows", list(islice(cycle(known), _PADDED_FROM)), any_size=True)

        # 4. Among many: at the first places, and as repetitions of the first one behind.
        if largest > least:
            others = list(islice(cycle(known), max(largest // 2, 2)))
            yield _padded(f"in a call of {largest} rows", others, largest)

    # --- calls ---

    def _answers(self, rows: Sequence[Row]) -> list[Outputs] | None:
        """The answer of each row, without outputs that have no row for each; None if there is none at all.

        There is none if the model rejects or fails at these rows, or the call might take longer than the time left.
        """
        count, self._rejected = len(rows), False
        try:
            outputs = self._model.run(self._signature.name, self._joined(rows), ())
        except InvalidRequest:
            self._rejected = True
            return None
        except OverBudget as reason:
            self._in_budget = False
            self._unproven.append(f"calls of {_rows(count)} were left out: {reason}")
            return None
        except ServingError as error:
            self._unproven.append(f"a call of {_rows(count)} failed: {error}")
            return None
        return _by_row(self._signature, outputs, count)

    def _joined(self, rows: Sequence[Row]) -> dict[str, Array]:
        if self._ragged_inputs is not None:
            return self._ragged_inputs.join(rows, len(rows), len(rows))
        return {name: np.concatenate([row[name] for row in rows]) for name in self._signature.inputs}


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _padded(where: str, rows: Sequence[_Compared], size: int) -> _Company:
    """A call of these rows, with repetitions of the first one behind, as padding rows are."""
    return _Company(where, [*rows, *[rows[0]] * (size - len(rows))])


def _by_row(signature: ModelSignature, outputs: Outputs, count: int) -> list[Outputs]:
    """Each row's own part of all outputs that have `count` rows."""
    fitting: dict[str, Array] = {}
    groups = {name: (name, *signature.ragged_outputs.get(name, ())) for name in outputs}
    for splits in signature.ragged_outputs.values():
        for name in splits:
            del groups[name]
    for values, names in groups.items():
        rows = RaggedRows({values: names[1:]} if names[1:] else {})
        group = {name: outputs[name] for name in names}
        if not rows.misfit(group, count):
            fitting |= group
    ragged = RaggedRows({values: names for values, names in signature.ragged_outputs.items() if values in fitting})
    return [ragged.part(fitting, row, row + 1) for row in range(count)]


def _differing(expected: Outputs, actual: Outputs, tolerances: Mapping[str, float] = TOLERANCES) -> set[str]:
    """The outputs that are not the same within rounding."""
    return {name for name, output in expected.items() if not agree({name: output}, _only(actual, name), tolerances)}


def _only(outputs: Outputs, name: str) -> Outputs:
    return {name: outputs[name]} if name in outputs else {}
