from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import Array, ModelSignature
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.row_independence import ENDLESS, RowIndependence
from app.loading.rows.row_proofs import RowProofs
from tests.loading.rows.test_row_probe import NumpyModel, to_the_most_steps

SIZES = BatchSizes.powers_of_two(4)
NOT_YET = "it is not proven yet that rows do not see each other"
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
    assert decide(NumpyModel(lambda sent: 2 * sent["x"]))[1] == "requests share calls, proven by probe, up to 4 rows"


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
        assert text == "requests share calls, not proven: row_independence says assume"
        assert assumed.rows == []
    assert denied.rows == []


def test_a_signatures_own_setting_overrides_its_models() -> None:
    assert decide(centred(), {"m/f": "assume", "m": "deny"})[0].alone == {}


def test_requests_with_nan_or_infinity_run_alone_where_the_graph_loops() -> None:
    """A loop to the largest number of the batch goes on for ever if that is infinity."""
    loop = NumpyModel(lambda sent: 2 * sent["x"], loops=True)
    signature, text = decide(loop)
    assert (signature.alone, signature.finite_only) == ({}, ENDLESS)
    assert (
        text == f"requests share calls, proven by probe, up to 4 rows; those with NaN or infinity run alone: {ENDLESS}"
    )
    assert decide(loop, {"m": "assume"})[0].finite_only == ""
    assert decide(NumpyModel(lambda sent: sent["x"], {"x": (np.int32, (None,))}, loops=True))[0].finite_only == ""


def test_requests_with_nan_or_infinity_run_alone_where_the_probe_finds_that_their_rows_see_others() -> None:
    signature, text = decide(NumpyModel(to_the_most_steps))
    reason = "such a row's answer depends on the other rows if one of them is NaN"
    assert (signature.alone, signature.finite_only) == ({}, reason)
    assert (
        text == f"requests share calls, proven by probe, up to 4 rows; those with NaN or infinity run alone: {reason}"
    )


def test_what_was_not_probed_runs_alone() -> None:
    signature, text = decide(centred(), sizes=BatchSizes((1,)))
    assert signature.why_alone() == NOT_YET
    assert text == f"each request runs alone: {NOT_YET}"


def test_a_signature_that_cannot_be_batched_is_left_out() -> None:
    rows = RowIndependence("m", {})
    model = NumpyModel(lambda sent: sent["x"], {"x": (float, ())})
    budget = TimeBudget(60.0)
    rows.by_probe(BudgetedModel(model, budget), rows.by_graph(model.signatures), SIZES, budget)
    assert (rows.found, model.rows) == ({}, [])


# --- by graph, and what calls found before ---


def doubling(verdict: str = "unknown", reason: str = "", fingerprint: str = "g", **more: object) -> NumpyModel:
    """A model whose graph was read."""
    return NumpyModel(
        lambda sent: 2 * sent["x"],
        graph_rows=GraphRows({"y": OutputRows(verdict, reason)}),  # type: ignore[arg-type]  # of the Literal
        fingerprint=fingerprint,
        **more,
    )


def rows_of(model: NumpyModel, proofs: RowProofs | None = None, **wanted: str) -> RowIndependence:
    rows = RowIndependence("m", wanted, proofs)
    rows.by_graph(model.signatures)
    return rows


def test_what_the_graph_proves_is_shared_without_a_call_at_any_number_of_rows() -> None:
    model = doubling("proven")
    signature, text = decide(model)
    assert (signature.alone, signature.most_rows, model.rows) == ({}, 0, [])
    assert text == "requests share calls, proven by graph"


@pytest.mark.parametrize("verdict", ["mixes", "no rows"])
def test_what_the_graph_says_mixes_runs_alone_without_a_call_and_names_the_operation(verdict: str) -> None:
    model = doubling(verdict, "Softmax 'top/Softmax' runs over the rows, axis 0 of its input")
    signature, text = decide(model)
    assert signature.why_alone() == "output 'y': Softmax 'top/Softmax' runs over the rows, axis 0 of its input"
    assert text == f"each request runs alone: {signature.why_alone()}"
    assert model.rows == []


def test_what_the_graph_leaves_open_is_probed() -> None:
    assert decide(doubling(reason="Foo 'a/b' is not known"))[1] == "requests share calls, proven by probe, up to 4 rows"


def test_what_no_proof_says_runs_alone_and_tells_each_reason_once() -> None:
    def reject(_: Mapping[str, Array]) -> Array:
        raise InvalidRequest("no image")

    model = NumpyModel(reject, graph_rows=GraphRows({"y": OutputRows("unknown", "Foo 'a/b' is not known")}))
    rows = rows_of(model)
    calls, budget = BudgetedModel(model, TimeBudget(60.0)), TimeBudget(60.0)
    for _ in range(2):
        rows.by_probe(calls, model.signatures, SIZES, budget)
    why = "the model rejects the values that it was tried with; by its graph: Foo 'a/b' is not known"
    assert str(rows.found["f"]) == f"each request runs alone: {NOT_YET}: {why}"
    assert rows.unproven(SIZES) == {"f": 1}


def test_a_larger_size_is_shared_once_it_is_proven_and_until_then_the_smaller_ones_are() -> None:
    model = NumpyModel(lambda sent: 2 * sent["x"])
    rows = rows_of(model)
    calls, budget = BudgetedModel(model, TimeBudget(60.0)), TimeBudget(60.0)
    for largest in (4, 16):
        sizes = BatchSizes.powers_of_two(largest)
        assert not rows.is_settled(sizes)
        signature = rows.by_probe(calls, model.signatures, sizes, budget)["f"]
        assert (signature.most_rows, rows.is_settled(sizes)) == (largest, True)
    assert model.rows.count(2) == 19  # those of the first probe


def test_a_proof_of_an_earlier_version_holds_from_the_first_request() -> None:
    proofs, model = RowProofs(None), doubling()
    rows = rows_of(model, proofs)
    rows.by_probe(BudgetedModel(model, TimeBudget(60.0)), model.signatures, SIZES, TimeBudget(60.0))
    again = doubling()
    assert str(rows_of(again, proofs).found["f"]) == "requests share calls, proven by probe, up to 4 rows"
    assert again.rows == []


def test_traffic_proves_what_no_probe_could_and_the_next_version_begins_with_it() -> None:
    proofs, changes = RowProofs(None), list[str]()
    rows = rows_of(doubling(), proofs)
    rows.changed = lambda: changes.append(str(rows.found["f"]))
    rows.by_traffic("f", 8)
    assert changes == ["requests share calls, proven by traffic, up to 8 rows"]
    assert (rows.unproven(SIZES), rows.unproven(BatchSizes.powers_of_two(64))) == ({}, {"f": 8})
    assert rows_of(doubling(), proofs).settled(doubling().signatures)["f"].most_rows == 8


@pytest.mark.parametrize("verdict", ["unknown", "proven"])
def test_a_disproof_ends_sharing_in_all_versions_of_the_graph_at_once_and_for_ever(verdict: str) -> None:
    proofs = RowProofs(None)
    rows, other = (rows_of(doubling(verdict), proofs) for _ in range(2))
    unlike = rows_of(doubling("proven", fingerprint="h"), proofs)
    other.by_traffic("f", 8)
    changes = list[str]()
    other.changed = lambda: changes.append(str(other.found["f"]))
    rows.stopped("f", "variant", "another way to execute it")
    assert changes == []
    rows.stopped("f", "sharing", "rows see each other")
    assert changes == ["each request runs alone: rows see each other"]
    assert str(unlike.found["f"]) == "requests share calls, proven by graph"
    later = rows_of(doubling("proven"), proofs)
    later.by_traffic("f", 64)
    assert str(later.found["f"]) == "each request runs alone: rows see each other"


def test_a_disproof_by_shadow_of_what_the_graph_proved_is_told_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    rows_of(doubling("proven")).stopped("f", "sharing", "a shadow check saw it")
    assert "the tables of operations are wrong" in caplog.text


def test_assume_is_the_only_way_to_share_without_a_proof_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    proofs = RowProofs(None)
    proofs.disprove("g", "why")
    rows = rows_of(doubling("mixes", "Softmax"), proofs, m="assume")
    assert str(rows.found["f"]) == "requests share calls, not proven: row_independence says assume"
    assert "row_independence says assume" in caplog.text


def test_the_setting_may_be_for_all_models() -> None:
    assert str(rows_of(doubling("proven"), **{"*": "deny"}).found["f"]).endswith("row_independence says deny")
    assert rows_of(doubling("proven"), **{"*": "deny", "m": "probe"}).found["f"].proof == "graph"


def test_a_model_that_draws_random_numbers_is_not_proven_by_traffic() -> None:
    assert rows_of(doubling(draws=("RandomUniform",))).unproven(SIZES) == {}


def test_a_version_that_ended_is_not_told_any_more() -> None:
    proofs = RowProofs(None)
    rows, changes = rows_of(doubling(), proofs), list[str]()
    rows.changed = lambda: changes.append("changed")
    rows.close()
    proofs.disprove("g", "why")
    assert changes == []


def test_batches_are_as_large_as_one_of_the_signatures_takes_and_each_has_its_own_limit() -> None:
    sizes, model = BatchSizes.powers_of_two(64), doubling("proven")
    rows = rows_of(model)
    assert rows.taken(sizes) == sizes
    rows.limit({"f": 24})
    assert rows.taken(sizes).allowed == (1, 2, 4, 8, 16, 24)
    assert rows.settled(model.signatures)["f"].most_rows == 24
    assert rows.is_settled(sizes)
    other = ModelSignature("g", model.signature.inputs, model.signature.outputs)
    rows.by_graph({"g": other})
    assert rows.taken(sizes) == sizes


def test_beside_a_signature_that_writes_state_only_the_graph_proves_rows() -> None:
    """What calls show holds for the values that variables had meanwhile."""
    proofs = RowProofs(None)
    rows_of(doubling(), proofs).by_traffic("f", 64)
    for verdict, proof in (("unknown", ""), ("proven", "graph")):
        model = doubling(verdict)
        writer = replace(model.signatures["f"], name="set", writes=("AssignVariableOp",))
        rows = RowIndependence("m", {}, proofs)
        signatures = rows.by_graph({**model.signatures, "set": writer})
        rows.by_probe(BudgetedModel(model, TimeBudget(60.0)), signatures, SIZES, TimeBudget(60.0))
        assert rows.found["f"].proof == proof
        assert ("signature 'set' writes state" in rows.found["f"].alone) == (not proof)
        assert rows.unproven(SIZES) == {}


def test_the_first_answers_of_what_calls_proved_are_compared_and_no_others() -> None:
    probed, model = rows_of(doubling()), doubling()
    assert probed.proven_by_calls == []
    probed.by_probe(BudgetedModel(model, TimeBudget(60.0)), model.signatures, SIZES, TimeBudget(60.0))
    assert probed.proven_by_calls == ["f"]
    seen = rows_of(doubling())
    seen.by_traffic("f", 64)
    assert (seen.proven_by_calls, rows_of(doubling("proven")).proven_by_calls) == (["f"], [])
