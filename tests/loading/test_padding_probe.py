"""Every model here is a few lines of numpy with a habit that padding meets in the field."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest, OutOfMemory
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.optional_inputs import with_declared_masks
from app.core.time_budget import TimeBudget
from app.core.values.value_hints import Range, ValueHint, ValueHints
from app.loading.budgeted_model import BudgetedModel
from app.loading.padding_probe import PaddingOptions, ProbedPadding, probe_padding

SIZES = BatchSizes.powers_of_two(8)
EMBEDDING = np.random.default_rng(1).standard_normal((100, 4)).astype(np.float32)

Run = Callable[[Mapping[str, Array]], Any]


class NumpyModel:
    """Output `y` of `run`; inputs by name, dtype and shape."""

    def __init__(self, run: Run, inputs: Mapping[str, tuple[Any, tuple[int | None, ...]]]) -> None:
        specs = {name: TensorSpec(name, np.dtype(dtype), shape) for name, (dtype, shape) in inputs.items()}
        y = TensorSpec("y", np.dtype(np.float32), None)
        self.signatures = {"f": ModelSignature("f", specs, {"y": y})}
        self.shapes: list[tuple[int, ...]] = []
        self._run = run

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self.shapes.append(next(iter(inputs.values())).shape)
        with np.errstate(all="ignore"):
            return {"y": np.asarray(self._run(inputs))}

    def close(self) -> None: ...


def refuse_unless(condition: object) -> None:
    if not condition:
        raise InvalidRequest("no")


def embed(tokens: Array) -> Array:
    refuse_unless((tokens >= 0).all() and (tokens < len(EMBEDDING)).all())
    return np.asarray(EMBEDDING[tokens])


def masked_mean(tokens: Array, mask: Array) -> Array:
    refuse_unless(tokens.shape == mask.shape)
    return np.asarray((embed(tokens) * mask[..., np.newaxis]).sum(1) / mask.sum(1, keepdims=True))


TOKENS = {"tokens": (np.int32, (None, None))}
FRACTIONS = {"x": (np.float32, (None, None))}


def unhurried(model: NumpyModel) -> BudgetedModel:
    """Its calls take no time."""
    return BudgetedModel(model, TimeBudget(1.0, lambda: 0.0), lambda: 0.0)


def probe(run: Run, inputs: Mapping[str, Any], **options: Any) -> ProbedPadding:
    return probe_padding(unhurried(NumpyModel(run, inputs)), SIZES, PaddingOptions(**options))["f"]


def test_values_of_hints_are_tried_where_made_up_ones_are_rejected() -> None:
    def shifted(inputs: Mapping[str, Array]) -> Array:
        refuse_unless((inputs["tokens"] % 1000 < 100).all() and (inputs["tokens"] // 1000 <= 1).all())
        refuse_unless(((inputs["tokens"] >= 1000) | (inputs["tokens"] == 0)).all())
        return (inputs["tokens"] % 1000).sum(1)

    class Hinted(NumpyModel):
        def value_hints(self, _: str) -> ValueHints:
            return {"tokens": ValueHint((Range(1000, 1099),), takes_zero=False)}

    model = unhurried(Hinted(shifted, TOKENS))
    assert probe_padding(model, SIZES, PaddingOptions())["f"].padding is not None
    assert probe(shifted, TOKENS).padding is None


def test_a_mask_from_the_tokens_makes_padding_neutral() -> None:
    probed = probe(lambda inputs: masked_mean(inputs["tokens"], inputs["tokens"] != 0), TOKENS)
    assert str(probed) == "padded: tokens[?,tokens.1] -> y[?,4]"


def test_a_mask_beside_the_tokens_is_padded_with_them() -> None:
    inputs = TOKENS | {"attention_mask": (np.int64, (None, None))}
    probed = probe(lambda sent: masked_mean(sent["tokens"], sent["attention_mask"]), inputs)
    assert str(probed) == "padded: tokens[?,d1], attention_mask[?,d1] -> y[?,4]"


def test_so_does_a_length() -> None:
    def mean(sent: Mapping[str, Array]) -> Array:
        tokens, length = sent["tokens"], sent["length"]
        refuse_unless((length <= tokens.shape[1]).all())
        return masked_mean(tokens, np.arange(tokens.shape[1]) < length[:, np.newaxis])

    assert probe(mean, TOKENS | {"length": (np.int32, (None,))}).padding is not None


def test_an_output_for_each_token_follows_the_tokens() -> None:
    probed = probe(lambda sent: embed(sent["tokens"]), TOKENS)
    assert probed.padding is not None
    assert probed.padding.outputs == {"y": ("tokens.1", 4)}


def test_independent_dimensions_are_told_apart() -> None:
    inputs = {"image": (np.float32, (None, None, None, 3)), "more": (np.float32, (None, None))}
    probed = probe(lambda sent: sent["image"].sum(3).transpose(0, 2, 1) + sent["more"][:, :1, np.newaxis], inputs)
    assert probed.padding is not None
    assert probed.padding.inputs == {"image": ("image.1", "image.2", 3), "more": ("more.1",)}
    assert probed.padding.outputs == {"y": ("image.2", "image.1")}


def test_square_images_share_one_size() -> None:
    def square(sent: Mapping[str, Array]) -> Array:
        refuse_unless(sent["x"].shape[1] == sent["x"].shape[2])
        return 2 * sent["x"]

    probed = probe(square, {"x": (np.float32, (None, None, None))})
    assert probed.padding is not None
    assert probed.padding.inputs == {"x": ("d", "d")}


@pytest.mark.parametrize(
    ("name", "run", "inputs"),
    [
        ("mean", lambda sent: embed(sent["tokens"]).mean(1), TOKENS),
        ("last", lambda sent: embed(sent["tokens"])[:, -1], TOKENS),
        ("maximum", lambda sent: sent["x"].max(1), FRACTIONS),  # 0 is greater only where all is below
        ("maximum of whole numbers", lambda sent: sent["x"].max(1), {"x": (np.int64, (None, None))}),
        ("minimum", lambda sent: sent["x"].min(1), FRACTIONS),
        ("position from the end", lambda sent: sent["x"] * np.arange(sent["x"].shape[1], 0, -1), FRACTIONS),
        ("neighbours", lambda sent: sent["x"] - sent["x"].mean(0), FRACTIONS | {"k": (np.float32, (None,))}),
        ("joined words", lambda sent: [len(b"-".join(row)) for row in sent["x"]], {"x": (STRING, (None, None))}),
    ],
)
def test_padding_that_changes_answers_is_found(name: str, run: Run, inputs: Mapping[str, Any]) -> None:
    assert str(probe(run, inputs)) == "only equal shapes share a batch: padding changes the model's answers", name


def test_one_may_pad_where_it_changes_answers_or_never() -> None:
    run = lambda sent: embed(sent["tokens"]).mean(1)  # noqa: E731 - a model of one line
    assert probe(run, TOKENS, pad="always").padding is not None
    assert probe_padding(unhurried(NumpyModel(run, TOKENS)), SIZES, PaddingOptions("never")) == {}


def test_another_value_may_be_the_neutral_one() -> None:
    run = lambda sent: sent["x"].max(1)  # noqa: E731 - a model of one line
    assert probe(run, FRACTIONS, values={"x": -1e30}).padding is not None
    words = probe(lambda sent: [list(row).count(b"?") == 0 for row in sent["x"]], {"x": (STRING, (None, None))})
    assert words.padding is not None
    assert words.padding.values == {"x": b""}


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda sent: sent["x"][:, ::2], "~1/2*x.1"),
        (lambda sent: sent["x"][:, : -(-sent["x"].shape[1] // 4)], "~1/4*x.1"),
        (lambda sent: sent["x"][:, 2:] - sent["x"][:, :-2], "x.1-2"),
        (lambda sent: np.repeat(sent["x"], 3, 1), "3*x.1"),
        (lambda sent: np.repeat(sent["x"], 2, 1)[:, 1::3], "~2/3*x.1"),
    ],
)
def test_an_output_may_follow_by_a_rule(run: Run, text: str) -> None:
    assert str(probe(run, FRACTIONS)) == f"padded: x[?,x.1] -> y[?,{text}]"


def test_a_rule_holds_from_the_least_size_that_was_tried() -> None:
    def valid(sent: Mapping[str, Array]) -> Array:
        refuse_unless(sent["x"].shape[1] >= 4)
        return sent["x"][:, 3::2]

    padding = probe(valid, FRACTIONS).padding
    assert padding is not None
    assert padding.bucket({"x": np.zeros((1, 3), np.float32)}) is None
    assert padding.bucket({"x": np.zeros((1, 4), np.float32)}) == ((8,),)


def test_a_stride_that_begins_where_the_size_says_is_found() -> None:
    """Neither the first sizes tried nor a padded one tell: 9, 10 and 19 leave 0 or 1 by 3, as do many others."""
    run = lambda sent: sent["x"][:, int(sent["x"].shape[1] % 5 == 2) :: 5]  # noqa: E731 - a model of one line
    assert probe(run, FRACTIONS).padding is None


@pytest.mark.parametrize(
    "run",
    [
        lambda sent: sent["x"][:, : int(sent["x"].shape[1] ** 0.5)],
        lambda sent: sent["x"].reshape(len(sent["x"]), -1)[:, : max(3, 30 - sent["x"].shape[1])],
        lambda sent: sent["x"][:, : int((sent["x"] > 0).sum())],
    ],
)
def test_an_output_that_follows_no_rule_is_not_understood(run: Run) -> None:
    assert probe(run, FRACTIONS).reason.startswith(
        "output 'y' has a dimension that changes with the inputs' by no rule that was found: "
    )


def test_an_output_that_follows_two_dimensions_is_not_understood() -> None:
    image = {"x": (np.float32, (None, None, None))}
    assert "by no rule" in probe(lambda sent: sent["x"].reshape(len(sent["x"]), -1), image).reason
    padding = probe(lambda sent: sent["x"][:, ::2, 1:], image).padding
    assert padding is not None
    assert str(padding) == "x[?,x.1,x.2] -> y[?,~1/2*x.1,x.2-1]"


def test_true_lengths_make_padding_neutral() -> None:
    """A model that counts on its length being the true one: lengths made up would say nothing of it."""

    def last(sent: Mapping[str, Array]) -> Array:
        tokens, length = sent["tokens"], sent["n"]
        return np.asarray(tokens[np.arange(len(tokens)), length - 1] + 0.0 * length)

    inputs = TOKENS | {"n": (np.int32, (None,)), "kept": (np.float32, (None, None))}
    model = NumpyModel(lambda sent: last(sent) * sent["kept"].sum(1) / sent["n"], inputs)
    signatures = with_declared_masks(model.signatures, {"n": "tokens", "kept": "tokens"})
    found = probe_padding(unhurried(model), SIZES, PaddingOptions(), signatures=signatures)["f"]
    assert found.padding is not None
    other = probe_padding(unhurried(model), SIZES, PaddingOptions(values={"kept": 1}), signatures=signatures)["f"]
    assert other.reason == "padding changes the model's answers"


def test_limits_of_a_model_are_found_around() -> None:
    def positions(sent: Mapping[str, Array]) -> Array:
        refuse_unless(sent["x"].shape[1] <= 10)
        return sent["x"]

    def convolution(sent: Mapping[str, Array]) -> Array:
        refuse_unless(sent["x"].shape[1] >= 30)
        return sent["x"]

    assert probe(positions, FRACTIONS).padding is not None
    assert probe(convolution, FRACTIONS).padding is not None


@pytest.mark.parametrize("error", [InvalidRequest("no"), OutOfMemory("no")])
def test_a_model_that_takes_nothing_is_not_padded(error: Exception) -> None:
    def reject(_: Mapping[str, Array]) -> Array:
        raise error

    assert probe(reject, FRACTIONS).reason == "the model rejects the values that it was tried with"


def test_answers_that_are_no_numbers_prove_nothing() -> None:
    assert probe(lambda sent: sent["x"].sum(1) * np.nan, FRACTIONS).padding is None


def test_what_has_no_free_inner_shape_or_does_not_batch_is_not_tried() -> None:
    fixed = NumpyModel(lambda sent: sent["x"], {"x": (np.float32, (None, 2))})
    scalar = NumpyModel(lambda sent: sent["x"], {"x": (np.float32, ())})
    free = NumpyModel(lambda sent: sent["x"], FRACTIONS)
    assert probe_padding(unhurried(fixed), SIZES, PaddingOptions()) == {}
    assert probe_padding(unhurried(scalar), SIZES, PaddingOptions()) == {}
    assert probe_padding(unhurried(free), BatchSizes((1,)), PaddingOptions()) == {}
    assert fixed.shapes == scalar.shapes == free.shapes == []


def test_calls_have_allowed_sizes() -> None:
    model = NumpyModel(lambda sent: sent["x"], FRACTIONS)
    probe_padding(unhurried(model), BatchSizes((4, 8)), PaddingOptions())
    assert {rows for rows, _ in model.shapes} == {4, 8}


@pytest.mark.parametrize(
    ("call_s", "cell_s", "cells"),
    [
        (5.0, 0.1, 50),
        (0.0, 0.1, 0),
        (5.0, 0.0, 8 * 19),  # as many as were tried: of more nothing is known
    ],
)
def test_the_cost_of_a_call_is_measured_in_cells(call_s: float, cell_s: float, cells: float) -> None:
    now = 0.0

    def echo(sent: Mapping[str, Array]) -> Array:
        nonlocal now
        now += call_s + cell_s * sent["x"].size
        return sent["x"]

    model = BudgetedModel(NumpyModel(echo, FRACTIONS), TimeBudget(60.0, lambda: 0.0), lambda: now)
    padding = probe_padding(model, SIZES, PaddingOptions())["f"].padding
    assert padding is not None
    assert padding.call_cells == pytest.approx(cells)


def test_a_stride_that_shifts_answers_is_seen_in_tokens_too() -> None:
    """By sizes of which 11 is the first that begins elsewhere; where all tokens are equal nobody sees it."""

    def pooled(sent: Mapping[str, Array]) -> Array:
        x = np.abs(embed(sent["tokens"])) * (sent["tokens"] > 0)[..., np.newaxis]
        length, stride, window = x.shape[1], 5, 3
        count = -(-length // stride)
        missing = max((count - 1) * stride + window - length, 0)
        x = np.pad(x, ((0, 0), (missing // 2, missing - missing // 2), (0, 0)))
        return np.stack([x[:, place * stride :][:, :window].max(1) for place in range(count)], 1)

    assert "padding changes the model's answers at some sizes" in str(probe(pooled, TOKENS))


@pytest.mark.parametrize(("vocabulary", "kind"), [(100, "small"), (4, "small"), (2, "ones")])
def test_calls_are_tried_with_values_that_differ_where_the_model_takes_such(vocabulary: int, kind: str) -> None:
    def mean(sent: Mapping[str, Array]) -> Array:
        refuse_unless((sent["tokens"] < vocabulary).all())
        return masked_mean(sent["tokens"], sent["tokens"] > 0)

    assert probe(mean, TOKENS).kind == kind


def test_the_budget_holds() -> None:
    """A model of 1 s a row took 377 s."""
    for seconds in (0.0, 3.0, 60.0, 300.0):
        now, probed = spent_on_a_slow_model(seconds)
        assert now <= max(seconds, 1.0)
        if seconds < 60.0:
            assert probed.reason.startswith("whether padding changes answers was not found out: ")


def spent_on_a_slow_model(budget_s: float) -> tuple[float, ProbedPadding]:
    now = 0.0

    def slow(sent: Mapping[str, Array]) -> Array:
        nonlocal now
        now += len(sent["x"])
        return sent["x"].sum(1)

    model = BudgetedModel(NumpyModel(slow, FRACTIONS), TimeBudget(budget_s, lambda: now), lambda: now)
    probed = probe_padding(model, SIZES, PaddingOptions())["f"]
    return now, probed
