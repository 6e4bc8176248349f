from collections.abc import Mapping

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.inference import ModelSignature
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.row_independence import ENDLESS, RowIndependence
from tests.loading.test_row_probe import NumpyModel, to_the_most_steps

SIZES = BatchSizes.powers_of_two(4)
CENTRED = "output 'y': a row's answer depends on the other rows in a call of 2 rows"


def centred(**more: object) -> NumpyModel:
    return NumpyModel(lambda sent: sent["x"] - sent["x"].mean(0), **more)


def decide(
    model: NumpyModel, wanted: Mapping[str, str] | None = None, sizes: BatchSizes = SIZES
) -> tuple[ModelSignature, str]:
    rows = RowIndependence("m", wanted or {})
    budget = TimeBudget(60.0)
    signatures = rows.by_probe(BudgetedModel(model, budget), rows.by_graph(model.signatures), sizes, budget)
    return signatures["f"], str(rows.found["f"])


def test_rows_that_do_not_see_each_other_share_calls() -> None:
    assert decide(NumpyModel(lambda sent: 2 * sent["x"]))[1] == "requests share calls"


def test_rows_that_see_each_other_run_alone() -> None:
    signature, text = decide(centred())
    assert (signature.why_alone(), text) == (CENTRED, f"each request runs alone: {CENTRED}")


def test_a_request_that_wants_other_outputs_shares_calls() -> None:
    both = lambda sent: {"y": sent["x"] - sent["x"].mean(0), "z": sent["x"]}  # noqa: E731 - a model of one line
    signature, _ = decide(NumpyModel(both, outputs=("y", "z")))
    assert (signature.why_alone(("z", "y")), signature.why_alone(("z",))) == (CENTRED, "")


def test_a_signature_that_writes_state_runs_alone_and_is_never_called() -> None:
    model = centred(writes=("AssignAddVariableOp",))
    signature, text = decide(model)
    assert text == "each request runs alone: each call writes state (AssignAddVariableOp)"
    assert signature.why_alone(("y",))
    assert model.rows == []


@pytest.mark.parametrize("name", ["m", "m/f"])
def test_the_setting_forces_either(name: str) -> None:
    denied = NumpyModel(lambda sent: 2 * sent["x"])
    assert decide(denied, {name: "deny"})[1] == "each request runs alone: row_independence says deny"
    for assumed in (centred(), centred(writes=("AssignVariableOp",))):
        signature, text = decide(assumed, {name: "assume", "other": "deny"})
        assert (signature.alone, signature.writes) == ({}, ())
        assert text == "requests share calls; not proven: row_independence says assume"
        assert assumed.rows == []
    assert denied.rows == []


def test_a_signatures_own_setting_overrides_its_models() -> None:
    assert decide(centred(), {"m/f": "assume", "m": "deny"})[0].alone == {}


def test_requests_with_nan_or_infinity_run_alone_where_the_graph_loops() -> None:
    """A loop to the largest number of the batch goes on for ever if that is infinity."""
    loop = NumpyModel(lambda sent: 2 * sent["x"], loops=True)
    signature, text = decide(loop)
    assert (signature.alone, signature.finite_only) == ({}, ENDLESS)
    assert text == f"requests share calls; those with NaN or infinity run alone: {ENDLESS}"
    assert decide(loop, {"m": "assume"})[0].finite_only == ""
    assert decide(NumpyModel(lambda sent: sent["x"], {"x": (np.int32, (None,))}, loops=True))[0].finite_only == ""


def test_requests_with_nan_or_infinity_run_alone_where_the_probe_finds_that_their_rows_see_others() -> None:
    signature, text = decide(NumpyModel(to_the_most_steps))
    reason = "such a row's answer depends on the other rows if one of them is NaN"
    assert (signature.alone, signature.finite_only) == ({}, reason)
    assert text == f"requests share calls; those with NaN or infinity run alone: {reason}"


def test_what_was_not_probed_says_so() -> None:
    assert decide(centred(), sizes=BatchSizes((1,)))[1] == "requests share calls; not proven: it was not probed"


def test_a_signature_that_cannot_be_batched_is_left_out() -> None:
    rows = RowIndependence("m", {})
    model = NumpyModel(lambda sent: sent["x"], {"x": (float, ())})
    budget = TimeBudget(60.0)
    rows.by_probe(BudgetedModel(model, budget), rows.by_graph(model.signatures), SIZES, budget)
    assert (rows.found, model.rows) == ({}, [])
