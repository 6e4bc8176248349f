"""The probe of rows during loading: a row must get the same answer in a shared call as alone.

A signature does not say this (a mean over the batch, batch normalisation in training mode and attention over rows look
like any other), so the model is called:
1. Some rows, of several kinds of values, are computed alone: one row, no padding. Their answers are the truth. Made-up
   values come first; beside them, or in their place, values by hints of the model: encoded images, examples, entries of
   its tables. The rows differ, since rows that are equal prove nothing.
2. In calls of two rows each row stands at both places, beside others, beside its repetition (as padding rows do), and
   beside extremes: NaN, infinities, strings of unusual lengths. These have answers alone, too.
3. In a call of seven rows, a number that batches are padded from: unpadded it must not mean anything to the model.
4. In a call of each larger size all rows stand among each other, with repetitions of the first one behind.
5. Rounding depends on the number of rows: a difference that the last digits of the inputs explain is none. Other
   differences are computed again with other values: one of thousands may differ by chance.

A model that rejects a call for its number of rows is tried again in calls of no more than it takes.

An output that differs, or that has no row for each row of the inputs, makes requests that want it run alone. If only
answers to rows of NaN or infinity differ, requests that hold such numbers run alone. An output is proven up
to the largest size that was compared, if rows have different answers. Values or sizes that the model rejects, and calls
that would take longer than the budget, prove nothing; the result names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import NamedTuple

import numpy as np

from app.batching.shapes.ragged import RaggedRows
from app.batching.shapes.sparse import composite_rows
from app.core.agreement import TF32_TOLERANCES, TOLERANCES, agree
from app.core.batch_sizes import BatchSizes, most_accepted
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import STRING, Array, ModelSignature, Row
from app.core.reply import Outputs
from app.core.time_budget import OverBudget
from app.core.values.rounding import Rounding
from app.core.values.sample_inputs import SEED
from app.core.values.value_hints import are_specific
from app.core.values.value_kinds import Reach, inputs_beyond
from app.loading.budgeted_model import BudgetedModel
from app.loading.output_shapes import Sizes
from app.loading.rows.probe_rows import (
    NARROW_KINDS,
    Hinted,
    Kind,
    NamedShapes,
    hinted_kinds,
    probe_row,
    shapes_to_try,
    untried_cells,
)

#: Kinds of values of the rows that are compared, in the order in which they are tried. Whole numbers that are all equal
#: ("ones") make ties, which rounding breaks, so this kind comes late; the last ones are for models that assert ranges.
_KINDS: Sequence[Kind] = ("small", "large", "negative") * 2 + ("ones",) * 2 + NARROW_KINDS * 3

#: Rows that are compared, of made-up values and again of hinted ones. Chosen: each kind beside each other kind.
_COMPARED = 3

#: Further rows of the kinds that the model accepts. Chosen: an effect of one row in four shows in 13 pairs with 97 %.
_FURTHER_ROWS = 13

#: Pools of hinted values of which one row more is compared. Chosen.
_OTHER_POOLS = 2

#: Draws of each hinted kind at most. Chosen: there may be few different values.
_HINTED_DRAWS = 6

#: Rows of a call that is not padded. Chosen: odd and no batch size, unlike the other calls; and cheap.
_PADDED_FROM = 7

#: Values that other rows must not notice. A maximum over rows may show infinity alone, a sum NaN. The length is chosen.
_EXTREMES = {
    "NaN": np.nan,
    "infinite": np.inf,
    "minus infinity": -np.inf,
    "empty": b"",
    "several words": b"some words " * 24,
}

_NO_ROW = "it has no row for each row of the inputs"


class ProbedRows(NamedTuple):
    """The verdict of the probe on one signature.

    dependent: by output, why requests that want it must run alone.
    proven: the outputs whose rows did not see each other in calls of up to `rows` rows.
    unproven: the calls that were not tried, and why; empty if all were.
    finite_only: why requests that hold NaN or infinity must run alone; empty if they need not.
    most_rows: the most rows of a call that the model takes; 0 if it took all numbers that were tried.
    """

    dependent: Mapping[str, str]
    proven: frozenset[str] = frozenset()
    rows: int = 1
    unproven: str = ""
    finite_only: str = ""
    most_rows: int = 0


class _Limited(Exception):
    """The model takes a limited number of rows in a call; the argument is this limit."""


class _NotTried(Exception):
    """A call was not made, or failed otherwise than by a rejection."""


def probe_rows(model: BudgetedModel, signature: ModelSignature, sizes: BatchSizes, since: int = 1) -> ProbedRows:
    """Whether rows of a batchable signature that writes no state see each other. Never fails.

    Args:
        since: the most rows of a call for which an earlier probe proved it; smaller calls are not made again.
    """
    most_rows = 0
    while True:
        try:
            found = _Probe(model, signature, sizes.up_to(most_rows or sizes.largest), since).find()
        except _Limited as limit:  # smaller each time
            (most_rows,) = limit.args
        else:
            return found._replace(most_rows=most_rows)


class _Compared(NamedTuple):
    """A row, and its answer alone; None if the model gave none.

    odd: it is all NaN or infinity.
    """

    row: Row
    answer: Outputs | None
    odd: bool = False


class _SharedCall(NamedTuple):
    """The rows of one call.

    any_size: the model may reject that many rows.
    proves: the rows of a call up to which rows do not see each other, if this call and those before it agree.
    """

    where: str
    rows: Sequence[_Compared]
    any_size: bool = False
    proves: int = 0

    @property
    def acceptable(self) -> bool:
        """Whether the model should accept the call."""
        return not self.any_size and all(each.answer is not None for each in self.rows)


class _Probe:
    """The probe of one signature, in calls of up to the largest of `sizes`."""

    def __init__(self, model: BudgetedModel, signature: ModelSignature, sizes: BatchSizes, since: int) -> None:
        # --- the model and its signature ---
        self._model = model
        self._signature = signature
        self._sizes = sizes
        self._composite = composite_rows(signature)
        self._hints = model.value_hints(signature.name)

        # --- state of the probe ---
        self._random = np.random.default_rng(SEED)
        self._rejected = False  # whether the model rejected the values of the last call
        self._over_budget = False  # whether there was no time or memory for it
        self._finite_only = ""
        self._drawn: list[tuple[NamedShapes, Sizes, Kind]] = []  # the sources of accepted rows
        self._unproven: list[str] = []
        self._since = self._proven_rows = since
        # By row and number of rows; with the row, so that no other object gets its id.
        self._repeated: dict[tuple[int, int], tuple[Row, list[Outputs] | None]] = {}
        self._rounding = Rounding(lambda row: next(iter(self._answers([row]) or ()), None))

    def find(self) -> ProbedRows:
        # 1. Rows that the model accepts, and their answers alone.
        compared = self._accepted()
        if not compared:
            return ProbedRows(
                {}, unproven=self._why_unproven() or "the model rejects the values that it was tried with"
            )

        # 2. Outputs that have no row for the row, and outputs that differ in equal calls, cannot be compared.
        answer = compared[0].answer or {}
        left = set(answer)
        if len(compared) < _COMPARED:
            self._unproven.append(f"the model accepts only {_rows(len(compared))} of different values of those tried")
        dependent = {name: _NO_ROW for name in self._signature.outputs if name not in answer}
        again = self._answers([compared[0].row])
        varying = _differing(answer, again[0]) if again else set()
        if self._signature.draws and varying:
            self._unproven.append(f"random numbers change {', '.join(sorted(varying))}")
        else:
            dependent |= dict.fromkeys(sorted(varying), "equal calls of the model give different answers")

        # 3. All others are compared, in calls with further rows. Outputs that are alike for all rows prove nothing.
        further = self._further_rows(compared)
        compared = [*compared, *(further or ())]
        found, rows = self._found(compared, left - varying), self._proven_rows
        dependent |= self._confirmed(found)
        if unsure := found.keys() - dependent.keys():
            self._unproven.append(f"{', '.join(sorted(unsure))} differed in company, but not with other values")
        silent = self._silent(compared) - varying - dependent.keys()
        if silent and len(compared) >= _COMPARED:
            self._unproven.append(f"all rows that it was tried with give the same {', '.join(sorted(silent))}")
        enough = rows > 1 and len(compared) >= _COMPARED and further is not None
        proven = frozenset(left - varying - silent - dependent.keys() - unsure) if enough else frozenset()
        return ProbedRows(dependent, proven, rows, self._why_unproven(), self._finite_only)

    def _silent(self, compared: Sequence[_Compared]) -> set[str]:
        """The outputs that are alike for all these rows. The splits of a ragged output show as much as its values."""
        first = compared[0].answer or {}
        varying = {name for each in compared[1:] for name in _differing(first, each.answer or {}, {})}
        for values, splits in self._signature.ragged_outputs.items():
            varying |= {name for name in splits if values in varying}
        return first.keys() - varying

    def _why_unproven(self) -> str:
        return "; ".join(dict.fromkeys(self._unproven))

    def _confirmed(self, suspects: dict[str, str]) -> dict[str, str]:
        """The suspects that differ with other values, too; all of them if other values could not be tried."""
        if not suspects or self._signature.sparse:  # other rows may lack the columns in which rows see each other
            return suspects
        tried = len(self._unproven)
        confirmed = self._found(self._accepted(), set(suspects))
        return confirmed if len(self._unproven) == tried else suspects

    # --- rows ---

    def _accepted(self) -> list[_Compared]:
        """New rows of one shape and of different kinds that the model accepts; empty if it accepts none."""
        known, shape = self._known()
        hinted = hinted_kinds(self._signature, self._hints)
        for naming, sizes in chain([(shape, {})] if known else [], shapes_to_try(self._signature, self._hints)):
            if cells := untried_cells(self._signature, naming, sizes):
                self._unproven.append(f"a sparse row has {cells:,} cells, too many to try all of them")
                continue
            found = self._different(naming, sizes, _KINDS) + (known if naming is shape else [])
            if hinted and (len(found) < _COMPARED or are_specific(self._hints)):
                found += self._hinted(naming, sizes, hinted)
            if found:
                return found
        return []

    def _further_rows(self, compared: Sequence[_Compared]) -> list[_Compared] | None:
        """More rows like those that were accepted, as far as there are different ones; None if there was no time."""
        found = {_content(each.row): each for each in compared}
        for naming, sizes, kind in islice(cycle(self._drawn), 2 * _FURTHER_ROWS):
            row = probe_row(self._signature, naming, sizes, kind, self._random, also_fixed=True)
            if len(found) < len(compared) + _FURTHER_ROWS and _content(row) not in found:
                if answers := self._answers([row]):
                    found[_content(row)] = _Compared(row, answers[0])
                elif self._over_budget:
                    return None
        return list(found.values())[len(compared) :]

    def _hinted(self, naming: NamedShapes, sizes: Sizes, kinds: Sequence[Kind]) -> list[_Compared]:
        """Rows of the first pool with values that the model accepts, and one row of some other pools.

        A row of another pool is an image of another size, an example without its optional features.
        """
        found: list[_Compared] = []
        for kind in kinds:
            found += self._different(naming, sizes, [kind] * (1 if found else _HINTED_DRAWS))
            if len(found) >= _COMPARED + _OTHER_POOLS:
                break
        return found

    def _known(self) -> tuple[list[_Compared], NamedShapes]:
        """The rows of the warm-up file that have the first one's shape and that the model accepts, and this shape."""
        rows = self._model.known_rows.get(self._signature.name, ())
        shape = {name: array.shape[1:] for name, array in rows[0].items()} if rows else {}
        alike = [row for row in rows if all(array.shape[1:] == shape[name] for name, array in row.items())]
        answered = {_content(row): (row, self._answers([row])) for row in alike[:_COMPARED]}
        return [_Compared(row, answers[0]) for row, answers in answered.values() if answers], shape

    def _different(self, naming: NamedShapes, sizes: Sizes, kinds: Sequence[Kind]) -> list[_Compared]:
        """Rows of these kinds that the model accepts, all different, if possible with different answers.

        If the first value of a kind by a hint is rejected, no other is tried.
        """
        found: dict[object, _Compared] = {}
        for kind in kinds:
            row = probe_row(self._signature, naming, sizes, kind, self._random, also_fixed=True)
            if _content(row) not in found and (answers := self._answers([row])):
                found[_content(row)] = _Compared(row, answers[0])
                self._drawn.append((naming, sizes, kind))
            rows = list(found.values())
            if len(rows) >= _COMPARED and not self._silent(rows):
                return [*rows[: _COMPARED - 1], rows[-1]]
            if isinstance(kind, Hinted) and not found:
                break
        return list(found.values())[:_COMPARED]

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
                if answers or self._rejected:  # a row that fails alone proves nothing in a shared call
                    yield what, _Compared(extreme, (answers[0] or None) if answers else None, odd)

    # --- shared calls ---

    def _found(self, compared: Sequence[_Compared], outputs: set[str]) -> dict[str, str]:
        """The outputs among `outputs` with other answers in a shared call than alone, each with the call."""
        found: dict[str, str] = {}
        for shared_call in self._shared_calls(compared) if compared and outputs else ():
            answers = self._answers([each.row for each in shared_call.rows])
            if answers is None:
                if self._rejected and shared_call.acceptable:
                    self._check_limit(shared_call.rows[0].row, len(shared_call.rows))
                    found = dict.fromkeys(sorted(outputs), f"the model rejects rows {shared_call.where}") | found
                elif shared_call.proves or self._over_budget:  # larger calls prove nothing without it
                    break
                continue
            self._proven_rows = max(self._proven_rows, shared_call.proves)
            for place, (each, answer) in enumerate(zip(shared_call.rows, answers, strict=True)):
                differing = self._from_alone(each, answer, place, len(shared_call.rows), outputs - found.keys())
                reason = f"row's answer depends on the other rows {shared_call.where}"
                if differing and each.odd:
                    self._finite_only = self._finite_only or f"such a {reason}"
                elif differing:
                    found |= dict.fromkeys(sorted(differing), f"a {reason}")
        return found

    def _check_limit(self, row: Row, refused: int) -> None:
        """Raises _Limited if the model rejects this many repetitions of a row, and takes fewer, but at least two."""

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

    def _from_alone(self, each: _Compared, answer: Outputs, place: int, count: int, wanted: set[str]) -> set[str]:
        """The wanted outputs whose answer at this place of a call of `count` rows is not the one alone.

        In TF32 the number of rows changes answers by more than rounding does. So the answer must equal that among
        repetitions of the row, within rounding, and this one that alone, within the tolerances of TF32.
        """
        alone = each.answer or {}
        if not self._signature.tf32:
            return self._rounding.unexplained(each.row, alone, answer, _differing(alone, answer) & wanted)
        among = self._among_itself(each.row, count)
        if among is None:
            return _differing(alone, answer, TF32_TOLERANCES) & wanted
        return (_differing(alone, among[place], TF32_TOLERANCES) | _differing(among[place], answer)) & wanted

    def _among_itself(self, row: Row, count: int) -> list[Outputs] | None:
        key = id(row), count
        if key not in self._repeated:
            self._repeated[key] = row, self._answers([row] * count)
        return self._repeated[key][1]

    def _shared_calls(self, rows: Sequence[_Compared]) -> Iterator[_SharedCall]:
        least, largest = self._sizes.padded(2), self._sizes.largest
        begins, known = self._since < least, list(rows[:_COMPARED])

        # 1. Pairs of neighbours, at both places; with repetitions of the first behind, if the model takes no two rows.
        for first in range(len(rows) if begins else 0):
            pair, is_last = [rows[first], rows[(first + 1) % len(rows)]], first == len(rows) - 1
            yield _padded(f"in a call of {least} rows", pair, least)._replace(proves=least if is_last else 1)

        # 2. Beside extremes.
        for what, extreme in self._extremes(rows[0].row):
            if begins:
                yield _SharedCall(f"if one of them is {what}", [extreme, *[rows[0]] * (least - 1)])
            if extreme.answer is not None:
                known.append(extreme)

        known += rows[_COMPARED:]

        # 3. A number of rows that is no batch size: such a request is padded, and the model may count rows.
        if largest > _PADDED_FROM > max(least, self._since):
            yield _SharedCall(
                f"in a call of {_PADDED_FROM} rows", list(islice(cycle(known), _PADDED_FROM)), any_size=True
            )

        # 4. Among many: at the first places, and as repetitions of the first one behind.
        for size in self._sizes.allowed:
            if size > max(least, self._since):
                others = list(islice(cycle(known), max(size // 2, 2)))
                yield _padded(f"in a call of {size} rows", others, size)._replace(proves=size)

    # --- calls ---

    def _answers(self, rows: Sequence[Row]) -> list[Outputs] | None:
        """The answer of each row, without outputs that have no row for each; None if there is none at all.

        There is none if the model rejects or fails at these rows, or the call might take longer than the time left.
        """
        count, self._rejected, self._over_budget = len(rows), False, False
        try:
            outputs = self._model.run(self._signature.name, self._joined(rows), ())
        except InvalidRequest:
            self._rejected = True
            return None
        except OverBudget as reason:
            self._over_budget = True
            self._unproven.append(f"calls of {_rows(count)} were left out: {reason}")
            return None
        except ServingError as error:
            self._unproven.append(f"a call of {_rows(count)} failed: {error}")
            return None
        return _by_row(self._signature, outputs, count)

    def _joined(self, rows: Sequence[Row]) -> dict[str, Array]:
        if self._composite is not None:
            return self._composite.join(rows, len(rows), len(rows))
        return {name: np.concatenate([row[name] for row in rows]) for name in self._signature.inputs}


def _content(row: Row) -> object:
    """A key that is equal for rows of equal values."""
    return tuple(
        (name, tuple(array.ravel().tolist()) if array.dtype == STRING else array.tobytes())
        for name, array in row.items()
    )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _padded(where: str, rows: Sequence[_Compared], size: int) -> _SharedCall:
    """The call of these rows, with repetitions of the first one behind, as padding rows are."""
    return _SharedCall(where, [*rows, *[rows[0]] * (size - len(rows))])


def _by_row(signature: ModelSignature, outputs: Outputs, count: int) -> list[Outputs]:
    """The parts of all outputs with `count` rows, for each row."""
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
