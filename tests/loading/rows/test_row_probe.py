"""Every model here is a few lines of numpy; what it does to a row may depend on the others."""

from collections.abc import Callable, Mapping
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.row_probe import ProbedRows, probe_rows

SIZES = BatchSizes.powers_of_two(16)
X = {"x": (np.float32, (None, 4))}
TOKENS = {"tokens": (np.int32, (None, None))}

Run = Callable[[dict[str, Array]], Any]


class NumpyModel:
    """Outputs of `run`, or one output `y`; counts the rows of each call."""

    def __init__(self, run: Run, inputs: Mapping[str, Any] = X, outputs: tuple[str, ...] = ("y",), **more: Any) -> None:
        specs = {name: TensorSpec(name, np.dtype(dtype), shape) for name, (dtype, shape) in inputs.items()}
        results = {name: TensorSpec(name, np.dtype(np.float32), None) for name in outputs}
        self.signature = ModelSignature("f", specs, results, **more)
        self.signatures = {"f": self.signature}
        self.rows: list[int] = []
        self._run = run

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self.rows.append(len(next(iter(inputs.values()))))
        with np.errstate(all="ignore"):
            results = self._run(dict(inputs))
        return {
            name: np.asarray(each) for name, each in (results if isinstance(results, dict) else {"y": results}).items()
        }

    def close(self) -> None: ...


def probe(model: NumpyModel, sizes: BatchSizes = SIZES, seconds: float = 60.0) -> ProbedRows:
    return probe_rows(BudgetedModel(model, TimeBudget(seconds)), model.signature, sizes)


def refuse_unless(condition: object) -> None:
    if not condition:
        raise InvalidRequest("no")


def normalised(x: Array) -> Array:
    return np.asarray((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3))


def over_rows(x: Array) -> Array:
    """Attention whose softmax runs over rows."""
    weights = np.exp(x @ x.T - (x @ x.T).max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True) @ x)


def in_columns(texts: Array) -> Array:
    """The lengths of their words, padded to the most words."""
    words = [text.split() for text in texts]
    most = max(map(len, words))
    return np.array([[*map(len, row), *[0] * (most - len(row))] for row in words])


INDEPENDENT: list[tuple[str, Run, Mapping[str, Any]]] = [
    ("elementwise", lambda sent: 2 * sent["x"] + 1, X),
    ("matrix", lambda sent: sent["x"] @ np.arange(8.0, dtype=np.float32).reshape(4, 2), X),
    ("softmax in the row", lambda sent: np.exp(sent["x"]) / np.exp(sent["x"]).sum(1, keepdims=True), X),
    ("class", lambda sent: sent["x"].argmax(1), X),
    ("tokens", lambda sent: sent["tokens"].sum(1), TOKENS),
    ("words", lambda sent: [len(b" ".join(row)) for row in sent["x"]], {"x": (STRING, (None, 2))}),
    ("one value", lambda sent: sent["x"] * 2, {"x": (np.float64, (None,))}),
]

DEPENDENT: list[tuple[str, Run, Mapping[str, Any]]] = [
    ("mean over rows", lambda sent: sent["x"] - sent["x"].mean(0), X),
    ("batch normalisation in training mode", lambda sent: normalised(sent["x"]), X),
    ("attention over rows", lambda sent: over_rows(sent["x"]), X),
    ("place in the batch", lambda sent: sent["x"] + np.arange(len(sent["x"]))[:, np.newaxis], X),
    ("place from the end", lambda sent: sent["x"] + np.arange(len(sent["x"]), 0, -1)[:, np.newaxis], X),
    ("the row before", lambda sent: sent["x"] + np.roll(sent["x"], 1, 0), X),
    ("number of rows", lambda sent: sent["x"] / len(sent["x"]), X),
    ("equal rows counted", lambda sent: [(sent["x"] == row).all(1).sum() for row in sent["x"]], X),
    ("rank among rows", lambda sent: sent["x"][:, 0].argsort().argsort(), X),
    ("the longest word", lambda sent: [len(max(sent["x"], key=len))] * len(sent["x"]), {"x": (STRING, (None,))}),
    ("words in columns", lambda sent: in_columns(sent["x"]), {"x": (STRING, (None,))}),
    ("not a number", lambda sent: sent["x"] * (1 + 0 * np.isnan(sent["x"]).any()) + np.isnan(sent["x"]).any(), X),
    ("infinity", lambda sent: np.where(np.isinf(sent["x"]).any(), 0, sent["x"]), X),
    ("beyond eight rows", lambda sent: sent["x"] + (len(sent["x"]) > 8) * sent["x"].mean(0), X),
    ("mean of whole numbers", lambda sent: sent["tokens"].mean() + 0.0 * sent["tokens"].sum(1), TOKENS),
]  # fmt: skip


#: Nothing was left out.
PROVEN = ProbedRows({}, frozenset({"y"}), SIZES.largest)


@pytest.mark.parametrize(("name", "run", "inputs"), INDEPENDENT)
def test_rows_that_do_not_see_each_other_share_calls(name: str, run: Run, inputs: Mapping[str, Any]) -> None:
    assert probe(NumpyModel(run, inputs)) == PROVEN, name


@pytest.mark.parametrize(("name", "run", "inputs"), DEPENDENT)
def test_rows_that_see_each_other_are_found(name: str, run: Run, inputs: Mapping[str, Any]) -> None:
    assert set(probe(NumpyModel(run, inputs)).dependent) == {"y"}, name


def test_the_reason_says_where() -> None:
    centred = probe(NumpyModel(lambda sent: sent["x"] - sent["x"].mean(0)))
    assert centred.dependent == {"y": "a row's answer depends on the other rows in a call of 2 rows"}
    many = probe(NumpyModel(lambda sent: sent["x"] * (1 + (len(sent["x"]) == 16))))
    assert many.dependent == {"y": "a row's answer depends on the other rows in a call of 16 rows"}


def test_only_the_outputs_that_mix_rows_are_named() -> None:
    model = NumpyModel(
        lambda sent: {"each": 2 * sent["x"], "total": sent["x"].sum(), "centred": sent["x"] - sent["x"].mean(0)},
        outputs=("each", "total", "centred"),
    )
    assert probe(model).dependent == {
        "total": "it has no row for each row of the inputs",
        "centred": "a row's answer depends on the other rows in a call of 2 rows",
    }


def test_random_numbers_cannot_be_compared_and_prove_nothing() -> None:
    random = np.random.default_rng(1)
    noisy = lambda sent: {"y": sent["x"] + random.random(), "z": sent["x"]}  # noqa: E731 - a model of one line
    assert probe(NumpyModel(noisy, outputs=("y", "z"), draws=("RandomUniform",))) == ProbedRows(
        {}, frozenset({"z"}), SIZES.largest, "random numbers change y"
    )
    assert probe(NumpyModel(noisy, outputs=("y", "z"))).dependent == {
        "y": "equal calls of the model give different answers"
    }


def test_rows_that_are_rejected_in_company_alone_run_alone() -> None:
    def alike(sent: dict[str, Array]) -> Array:
        refuse_unless(len(np.unique(np.sign(sent["x"].sum(1)))) == 1)
        return sent["x"]

    found = probe(NumpyModel(alike))
    assert (found.dependent, found.most_rows) == ({"y": "the model rejects rows in a call of 2 rows"}, 0)


def test_rows_that_must_differ_run_alone() -> None:
    def distinct(sent: dict[str, Array]) -> Array:
        refuse_unless(len(np.unique(sent["x"], axis=0)) == len(sent["x"]))
        return sent["x"]

    found = probe(NumpyModel(distinct))
    assert (found.dependent, found.most_rows) == ({"y": "the model rejects rows in a call of 4 rows"}, 0)


@pytest.mark.parametrize("most", [2, 3, 7, 8, 12, 15])
def test_the_most_rows_that_a_model_takes_are_found_and_rows_compared_in_calls_of_as_many(most: int) -> None:
    def few(sent: dict[str, Array]) -> Array:
        refuse_unless(len(sent["x"]) <= most)
        return sent["x"]

    model = NumpyModel(few)
    assert probe(model) == ProbedRows({}, frozenset({"y"}), most, most_rows=most)
    assert most in model.rows

    def few_mixed(sent: dict[str, Array]) -> Array:
        return few(sent) - sent["x"].mean(0)

    assert probe(NumpyModel(few_mixed)).dependent.keys() == {"y"}


def test_a_model_that_takes_one_row_alone_runs_alone() -> None:
    def one(sent: dict[str, Array]) -> Array:
        refuse_unless(len(sent["x"]) == 1)
        return sent["x"]

    assert probe(NumpyModel(one)).dependent == {"y": "the model rejects rows in a call of 2 rows"}


def test_what_beside_random_numbers_can_be_compared_is() -> None:
    random = np.random.default_rng(1)
    model = NumpyModel(
        lambda sent: {"y": sent["x"] + random.random(), "z": sent["x"] - sent["x"].mean(0)},
        outputs=("y", "z"),
        draws=("RandomUniform",),
    )
    assert set(probe(model).dependent) == {"z"}


def test_rounding_that_differs_by_chance_is_no_dependence() -> None:
    """A difference of large numbers: of the first values drawn it is so small that rounding shows."""
    calls = count()
    model = NumpyModel(lambda sent: sent["x"].sum(1) * (1 + 1e-3 * (next(calls) == 4)))
    assert probe(model) == PROVEN


WIDE = {"x": (np.float32, (None, 1000))}


def in_another_order(x: Array) -> Array:
    """The rows as they are alone, from the last column to the first one in a call of several."""
    return np.ascontiguousarray(x if len(x) == 1 else x[:, ::-1])


def remainder(x: Array) -> Array:
    """What is left of a large sum when its whole part is taken off: rounding of the sum is much of it."""
    total = (1000 * in_another_order(x)).sum(1, dtype=np.float32)
    return np.asarray(total - np.round(total))


def greatest_of_equals(x: Array) -> Array:
    """Which of five sums of the same numbers, in orders of their own, is the greatest: rounding alone decides."""
    orders = [np.random.default_rng(number).permutation(20) for number in range(5)]
    return np.argmax([np.cumsum(in_another_order(x[:, order]), 1)[:, -1] for order in orders], 0)


@pytest.mark.parametrize("rounded", [remainder, greatest_of_equals])
def test_a_difference_that_the_last_digits_of_the_inputs_explain_is_no_dependence(
    rounded: Callable[[Array], Array],
) -> None:
    assert probe(NumpyModel(lambda sent: rounded(sent["x"]), WIDE)).dependent == {}


@pytest.mark.parametrize("rounded", [remainder, greatest_of_equals])
def test_rows_that_see_each_other_are_found_where_rounding_shows(rounded: Callable[[Array], Array]) -> None:
    mixed = NumpyModel(lambda sent: rounded(sent["x"]) + (sent["x"][:, 0] - sent["x"][:, 0].mean()), WIDE)
    assert set(probe(mixed).dependent) == {"y"}
    ranked = NumpyModel(lambda sent: (sent["x"] + sent["x"].mean(0)).argmax(1), WIDE)
    assert set(probe(ranked).dependent) == {"y"}


def test_rows_that_are_equal_prove_nothing() -> None:
    def only_ones(sent: dict[str, Array]) -> Array:
        refuse_unless((sent["tokens"] == 1).all())
        return np.asarray(sent["tokens"].sum(1) - sent["tokens"].sum(1).mean())

    unproven = "the model accepts only 1 row of different values of those tried"
    found = probe(NumpyModel(only_ones, TOKENS))
    assert (found.proven, found.unproven) == (frozenset(), unproven)


def test_answers_that_are_all_equal_prove_nothing() -> None:
    def known(sent: dict[str, Array]) -> Array:
        codes = np.asarray([{b"a": 1, b"b": 2}.get(each, 0) for each in sent["x"]], np.float32)
        return np.asarray(codes - codes.mean())

    found = probe(NumpyModel(known, {"x": (STRING, (None,))}))
    assert (found.proven, found.unproven) == (frozenset(), "all rows that it was tried with give the same y")


def in_tf32(x: Array) -> Array:
    """A product as a GPU computes it: one row precisely, several with factors of 11 binary digits."""
    matrix = np.random.default_rng(3).normal(0, 1, (4, 8)).astype(np.float32)
    if len(x) == 1:
        return np.asarray(x @ matrix)
    fewer = len(x) * 2**9  # and by other kernels for other numbers of rows
    return np.asarray((np.round(x * fewer) / fewer) @ matrix, np.float32)


def test_the_number_of_rows_alone_changes_answers_in_tf32_and_is_no_dependence() -> None:
    assert probe(NumpyModel(lambda sent: in_tf32(sent["x"]))).dependent  # elsewhere it is one
    assert not probe(NumpyModel(lambda sent: in_tf32(sent["x"]), tf32=True)).dependent


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + 1e-3 * x.mean(0),
        lambda x: x - x.mean(0),
        lambda x: x / len(x),
        lambda x: x + np.float32(len(x) > 1),
        normalised,
        over_rows,
    ],
)
def test_rows_that_see_each_other_are_found_in_tf32_too(mixed: Callable[[Array], Array]) -> None:
    assert probe(NumpyModel(lambda sent: mixed(in_tf32(sent["x"])), tf32=True)).dependent


def test_a_model_that_rejects_all_values_is_not_proven() -> None:
    def reject(_: dict[str, Array]) -> Array:
        raise InvalidRequest("no image")

    assert probe(NumpyModel(reject)) == ProbedRows({}, unproven="the model rejects the values that it was tried with")


def test_one_row_that_the_model_accepts_proves_nothing() -> None:
    seen: list[float] = []

    def only_the_first(sent: dict[str, Array]) -> Array:
        seen[:] = seen or [float(sent["x"][0, 0])]
        refuse_unless((sent["x"][:, 0] == seen[0]).all())
        return sent["x"]

    assert probe(NumpyModel(only_the_first)).proven == frozenset()


def test_what_an_earlier_probe_proved_is_not_called_again() -> None:
    model = NumpyModel(lambda sent: sent["x"])
    budget = TimeBudget(60.0)
    assert probe_rows(BudgetedModel(model, budget), model.signature, SIZES, since=8) == PROVEN
    assert set(model.rows) == {1, 16}


def test_extremes_that_the_model_rejects_prove_nothing() -> None:
    def checked(sent: dict[str, Array]) -> Array:
        refuse_unless(np.isfinite(sent["x"]).all())
        return 2 * sent["x"]

    assert probe(NumpyModel(checked)) == PROVEN


def test_what_takes_only_finite_numbers_in_company_gets_no_others_for_which_it_might_never_end() -> None:
    def halved(sent: dict[str, Array]) -> Array:
        assert np.isfinite(sent["x"]).all()
        return 2 * sent["x"]

    assert probe(NumpyModel(halved, finite_only="it loops")) == PROVEN


def to_the_most_steps(sent: dict[str, Array]) -> Array:
    """A loop over the whole batch; a mask leaves a row as it is when its own steps are over."""
    steps = np.ceil(np.nan_to_num(np.clip(sent["x"][:, :1], 1, 9)))
    total = np.zeros_like(sent["x"])
    for step in range(int(steps.max())):
        total += sent["x"] * (step < steps)
    return total


def test_rows_of_infinity_that_see_the_others_run_alone_and_all_others_share_calls() -> None:
    """Minus infinity times a mask of 0 is NaN: one of 394 requests was answered otherwise than alone."""
    found = probe(NumpyModel(to_the_most_steps))
    assert (found.dependent, found.unproven) == ({}, "")
    assert found.finite_only == "such a row's answer depends on the other rows if one of them is NaN"


def test_rows_of_nan_are_compared_in_calls_of_many_rows_too() -> None:
    """Kernels compute many numbers at a time, and what is left one by one: some treat NaN in two ways."""
    found = probe(NumpyModel(lambda sent: np.fmax(sent["x"], 0) if len(sent["x"]) > 4 else np.maximum(sent["x"], 0)))
    assert (found.dependent, found.unproven) == ({}, "")
    assert found.finite_only == "such a row's answer depends on the other rows in a call of 7 rows"


def test_texts_that_see_the_others_make_all_run_alone() -> None:
    model = NumpyModel(lambda sent: [len(text) or len(sent["x"]) for text in sent["x"]], {"x": (STRING, (None,))})
    assert set(probe(model).dependent) == {"y"}


def test_an_extreme_that_is_rejected_in_company_alone_makes_all_run_alone() -> None:
    def checked(sent: dict[str, Array]) -> Array:
        refuse_unless(len(sent["x"]) == 1 or np.isfinite(sent["x"]).all())
        return 2 * sent["x"]

    assert probe(NumpyModel(checked)).dependent == {"y": "the model rejects rows if one of them is NaN"}


@pytest.mark.parametrize("error", [OutOfMemory("no room"), InferenceFailed("no room")])
def test_a_size_that_fails_is_told(error: Exception) -> None:
    def small(sent: dict[str, Array]) -> Array:
        if len(sent["x"]) > 8:
            raise error
        return sent["x"]

    assert probe(NumpyModel(small)) == ProbedRows({}, frozenset({"y"}), 8, "a call of 16 rows failed: no room")


@pytest.mark.parametrize("centred", [False, True])
def test_a_slow_model_is_not_called_at_the_largest_size(centred: bool) -> None:
    now = 0.0

    def slow(sent: dict[str, Array]) -> Array:
        nonlocal now
        now += len(sent["x"])
        return sent["x"] - sent["x"].mean(0) * (centred and len(sent["x"]) > 1)

    model = NumpyModel(slow)
    calls = BudgetedModel(model, TimeBudget(24.0, lambda: now), lambda: now)
    found = probe_rows(calls, model.signature, SIZES)
    assert set(found.dependent) == ({"y"} if centred else set())
    assert "calls of 2 rows were left out: " in found.unproven
    assert (found.proven, found.rows) == (frozenset(), 1)
    assert now <= 24.0
    assert set(model.rows) == {1, 2}


def test_a_quick_model_is_called_a_few_times_and_once_at_each_larger_size() -> None:
    model = NumpyModel(lambda sent: sent["x"])
    probe(model)
    assert len(model.rows) <= 43
    assert [model.rows.count(size) for size in (4, 7, 8, 16)] == [1, 1, 1, 1]
    assert set(model.rows) == {1, 2, 4, 7, 8, 16}


def test_a_model_that_counts_rows_beside_those_of_batches_is_found() -> None:
    model = NumpyModel(lambda sent: sent["x"] + (len(sent["x"]) % 2 == 1 and len(sent["x"]) > 3))
    assert "in a call of 7 rows" in probe(model).dependent["y"]


def test_a_model_that_takes_batch_sizes_only_shares_calls() -> None:
    def run(sent: dict[str, Array]) -> Array:
        refuse_unless(len(sent["x"]) in SIZES.allowed)
        return sent["x"]

    assert probe(NumpyModel(run)).dependent == {}


def test_sizes_that_are_allowed_are_tried() -> None:
    model = NumpyModel(lambda sent: sent["x"] + (len(sent["x"]) == 6))
    assert set(probe(model, BatchSizes((6, 9))).dependent) == {"y"}
    assert set(model.rows) == {1, 6, 7, 9}


def test_the_limits_of_a_model_are_found_around() -> None:
    def positions(sent: dict[str, Array]) -> Array:
        refuse_unless(sent["tokens"].shape[1] <= 5 and (sent["tokens"] < 3).all())
        return sent["tokens"] - sent["tokens"].mean(0)

    assert set(probe(NumpyModel(positions, TOKENS)).dependent) == {"y"}


def ragged_sums(sent: dict[str, Array], mixed: bool) -> dict[str, Array]:
    values, splits = sent["words"], sent["words_1"]
    sums = [values[start:end].sum() for start, end in pairwise(splits)]
    return {"sums": np.array(sums) + (values.mean() if mixed else 0), "words": values, "words_1": splits}


@pytest.mark.parametrize("mixed", [False, True])
def test_ragged_rows_are_compared_too(mixed: bool) -> None:
    model = NumpyModel(
        lambda sent: ragged_sums(sent, mixed),
        {"words": (np.float32, (None,)), "words_1": (np.int64, (None,))},
        ("sums", "words", "words_1"),
        ragged={"words": ("words_1",)},
        ragged_outputs={"words": ("words_1",)},
    )
    assert set(probe(model).dependent) == ({"sums"} if mixed else set())
