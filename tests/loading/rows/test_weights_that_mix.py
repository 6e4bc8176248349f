"""A proof by calls says nothing of other weights of the same graph: today's may hide that rows see each other."""

from pathlib import Path

import tensorflow as tf

from app.core.batch_sizes import BatchSizes
from app.core.time_budget import TimeBudget
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.row_independence import RowIndependence
from app.loading.rows.row_proofs import RowProofs
from app.runtime import RuntimeOptions, create_runtime

SIZES = BatchSizes.powers_of_two(8)


def save(path: Path, weight: float) -> Path:
    module = tf.Module()
    module.weight = tf.Variable(weight)
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")
    # What is turned round might be turned back, so the graph alone says nothing.
    serve = lambda x: {"y": tf.where(module.weight > 0, x + tf.reverse(x, [0]), x)}  # noqa: E731 - a model of one line
    module.serve = tf.function(serve, input_signature=[spec])
    tf.saved_model.save(module, path, signatures=module.serve)
    return path


def found(path: Path, proofs: RowProofs, *, by_probe: bool) -> str:
    model = create_runtime("tensorflow", RuntimeOptions()).load(path)
    rows = RowIndependence("m", {}, proofs)
    rows.by_graph(model.signatures)
    if by_probe:
        rows.by_probe(BudgetedModel(model, TimeBudget(60.0)), model.signatures, SIZES, TimeBudget(60.0))
    model.close()
    return str(rows.found["serving_default"])


def test_a_version_with_other_weights_is_tried_anew(tmp_path: Path) -> None:
    proofs = RowProofs(None)
    before, same, trained = (save(tmp_path / name, weight) for name, weight in (("1", 0.0), ("2", 0.0), ("3", 0.5)))
    proven = "requests share calls, proven by probe, up to 8 rows"
    assert found(before, proofs, by_probe=True) == proven
    assert found(same, proofs, by_probe=False) == proven
    assert found(trained, proofs, by_probe=False).startswith("each request runs alone: it is not proven yet")
    assert found(trained, proofs, by_probe=True).startswith("each request runs alone: output 'y'")
