"""Decision forests (Yggdrasil): the operations of TensorFlow Decision Forests and of ydf-tf.

Their kernel (ops/inference/kernel.cc) walks the trees for one example after the other. Its caches hold memory, and
nothing of an earlier call: each call fills the part that it reads.
"""

from __future__ import annotations

from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Uniform, Value, rows_at
from app.runtimes.tensorflow.row_proof.call import Call, Results, rule


@rule("SimpleMLInferenceOp SimpleMLInferenceOpWithHandle SimpleMLInferenceLeafIndexOpWithHandle")
def predict(
    call: Call,
    numerical: Value,
    boolean: Value,
    categorical: Value,
    set_values: Value,
    set_splits: Value,
    set_rows: Value,
    *model: Value,
) -> Results:
    """Predictions [examples, outputs] and the names of the outputs, or leaves [examples, trees].

    A kind of features that the model has not is an empty matrix. All others must have equally many examples.
    """
    call.check_uniform("model", *model)
    call.check_uniform("sets of categories", set_values, set_splits, set_rows)
    matrices = [each for each in (numerical, boolean, categorical) if not _is_empty(call, each)]
    if all(isinstance(each, Uniform) for each in matrices):
        raise call.unknown("its features have no rows")
    rows = [call.rows(each) for each in matrices]
    if len({each.space for each in rows}) > 1 or not all(map(_one_example_a_row, rows)):
        raise call.unknown("its examples are not one for each row")
    first = rows[0]
    if call.node.op == "SimpleMLInferenceLeafIndexOpWithHandle":
        return rows_at((first.shape[0], call.symbols.fresh()), 0, first)
    outputs = call.number("dense_output_dim")
    return [rows_at((first.shape[0], outputs), 0, first), Uniform((outputs,))]


def _is_empty(call: Call, features: Value) -> bool:
    return isinstance(features, Uniform) and call.shape(features)[:1] == (0,)


def _one_example_a_row(features: Rows) -> bool:
    return features.axis == 0 and features.plain and len(features.shape) == 2
