from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from app.codecs.json.predict_documents import check_outputs_writable
from app.codecs.protobuf.tensor_protos import tensor_parts
from app.core.errors import InvalidRequest
from app.core.inference import SparseParts, TensorSpec, dtype_name
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel as SavedModelInMemory
from app.runtimes.tensorflow.saved_model.signature_defs import read_signatures, serving_graph
from tests.support import savedmodels

FLOAT32 = np.dtype(np.float32)


def test_a_tensorflow_1_model_keeps_its_tensor_and_method_names(tmp_path: Path) -> None:
    savedmodels.make_tf1(tmp_path / "1")
    signatures = read_signatures(serving_graph(tmp_path / "1"), "m")
    assert {name: signature.method_name for name, signature in signatures.items()} == {
        "classify": "tensorflow/serving/classify",
        "regress": "tensorflow/serving/regress",
        "serving_default": "tensorflow/serving/predict",
    }
    default = signatures["serving_default"]
    assert default.inputs == {"images/x": TensorSpec("images/x", FLOAT32, (None, 1), "x:0")}
    assert default.outputs == {
        "guarded": TensorSpec("guarded", FLOAT32, (None, 1), "guarded:0"),
        "scaled": TensorSpec("scaled", FLOAT32, (None, 1), "scaled:0"),
    }


def test_a_tensorflow_2_model_too(tmp_path: Path) -> None:
    savedmodels.make_half_plus_two(tmp_path / "1")
    signatures = read_signatures(serving_graph(tmp_path / "1"), "m")
    assert signatures["regress_x_to_y"].method_name == "tensorflow/serving/regress"
    assert signatures["serving_default"].inputs["x"].tensor_name == "serving_default_x:0"


def test_dtypes_are_those_of_tensorflow(tmp_path: Path) -> None:
    savedmodels.make_every_dtype(tmp_path / "1")
    inputs = read_signatures(serving_graph(tmp_path / "1"), "m")["serving_default"].inputs
    assert {name: dtype_name(spec.dtype) for name, spec in inputs.items()} == {
        name: getattr(tf, name).name for name in savedmodels.DTYPES
    }
    assert inputs["bfloat16"].dtype == ml_dtypes.bfloat16


def test_shapes_tell_unknown_sizes_from_unknown_rank(tmp_path: Path) -> None:
    savedmodels.make_unknown_inner(tmp_path / "inner")
    savedmodels.make_unknown_rank(tmp_path / "rank")
    savedmodels.make_scalar(tmp_path / "scalar")
    assert read_signatures(serving_graph(tmp_path / "inner"), "m")["serving_default"].inputs["matrix"].shape == (
        None,
        None,
        None,
    )
    assert read_signatures(serving_graph(tmp_path / "rank"), "m")["serving_default"].inputs["x"].shape is None
    assert read_signatures(serving_graph(tmp_path / "scalar"), "m")["serving_default"].inputs["a"].shape == ()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            savedmodels.make_tf1,
            "'by_handle' of m/1 is left out, because input 'handle' of type resource",
        ),
        (
            savedmodels.make_sparse_tf1,
            "'sparse' of m/1 is left out, because input 'sparse' is not a dense tensor",
        ),
    ],
)
def test_a_signature_that_arrays_cannot_feed_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: savedmodels.Make, reason: str
) -> None:
    make(tmp_path / "m" / "1")
    assert "serving_default" in read_signatures(serving_graph(tmp_path / "m" / "1"), "m/1")
    assert reason in caplog.text
    assert len(caplog.records) == 1


def test_a_model_of_which_no_signature_can_be_called_is_no_model(tmp_path: Path) -> None:
    """It would be AVAILABLE, and every request be told that its signature is not there."""
    savedmodels.make_scalar(tmp_path)
    file = tmp_path / "saved_model.pb"
    proto = SavedModel.FromString(file.read_bytes())
    proto.meta_graphs[0].signature_def["serving_default"].inputs["a"].dtype = tf.qint8.as_datatype_enum
    file.write_bytes(proto.SerializeToString())
    with pytest.raises(ValueError, match="not 'serving_default', because input 'a' of type qint8 has no array type"):
        read_signatures(serving_graph(tmp_path), "m")


@pytest.mark.parametrize("entry", ["__saved_model_init_op", "__saved_model_train_op"])
def test_entries_for_loading_and_training_are_no_signatures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: str
) -> None:
    savedmodels.make_scalar(tmp_path)
    file = tmp_path / "saved_model.pb"
    proto = SavedModel.FromString(file.read_bytes())
    definitions = proto.meta_graphs[0].signature_def
    definitions[entry].CopyFrom(definitions["serving_default"])
    file.write_bytes(proto.SerializeToString())
    assert list(read_signatures(serving_graph(tmp_path), "m")) == ["serving_default"]
    assert not caplog.records


def test_the_serving_graph_is_found_among_several(tmp_path: Path) -> None:
    savedmodels.make_scalar(tmp_path)
    file = tmp_path / "saved_model.pb"
    proto = SavedModel.FromString(file.read_bytes())
    graph = proto.meta_graphs.add()
    graph.CopyFrom(proto.meta_graphs[0])
    proto.meta_graphs[0].meta_info_def.tags[:] = ["serve", "gpu"]
    del proto.meta_graphs[0].signature_def["serving_default"]
    file.write_bytes(proto.SerializeToString())
    assert list(read_signatures(serving_graph(tmp_path), "m")) == ["serving_default"]


def test_default_values_of_inputs_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    savedmodels.make_with_defaults(tmp_path)
    signature = read_signatures(serving_graph(tmp_path), "m")["serving_default"]
    assert {name: value.tolist() for name, value in signature.defaults.items()} == {"scale": [[3]], "name": [b"four"]}
    assert all(value.dtype == signature.inputs[name].dtype for name, value in signature.defaults.items())
    assert list(signature.expected(())) == ["x"]

    savedmodels.set_defaults(tmp_path, scale=[1], unknown=[1.0])
    assert list(read_signatures(serving_graph(tmp_path), "m")["serving_default"].defaults) == ["name"]
    assert "default value of 'scale' in signature 'serving_default' is not used: expected float32[?,1]" in caplog.text


def test_the_parts_of_a_sparse_tensor_are_found(tmp_path: Path) -> None:
    savedmodels.make_sparse(tmp_path / "1")
    (signature,) = read_signatures(serving_graph(tmp_path / "1"), "m").values()
    assert signature.sparse == (SparseParts("ids", "ids_1", "ids_2"),)
    assert signature.sparse_sizes == {"ids": (None,)}
    assert not signature.batchable
    assert signature.has_sparse_rows
    assert signature.shares_calls


@pytest.mark.parametrize("kept", [True, False], ids=["with the function", "without it"])
@pytest.mark.parametrize("shape", [[None, 100], [None, 4, None], None])
def test_the_sizes_of_a_sparse_tensor_are_known_by_the_saved_function(
    tmp_path: Path, shape: list[int | None] | None, kept: bool
) -> None:
    """A function that is no part of the saved object has no arguments there; its three tensors have one name."""
    module = tf.Module()
    function = tf.function(
        lambda one, x: {"y": tf.cast(tf.size(x.values), tf.float32) + one},
        input_signature=[tf.TensorSpec([None]), tf.SparseTensorSpec(shape, tf.float32)],
        autograph=False,
    )
    module.function = function if kept else None
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=function)
    (signature,) = read_signatures(serving_graph(tmp_path / "1"), "m").values()
    assert signature.sparse == (SparseParts("x", "x_1", "x_2"),)
    known = tuple(shape[1:]) if kept and shape else (None,) * (len(shape or [None]) - 1)
    assert signature.sparse_sizes == {"x": known}


def test_parts_that_only_look_like_a_sparse_tensor_are_none(tmp_path: Path) -> None:
    savedmodels.make_twins(tmp_path / "1")
    (signature,) = read_signatures(serving_graph(tmp_path / "1"), "m").values()
    assert signature.sparse == ()


def test_a_quantized_output_is_served_as_its_stored_numbers(tmp_path: Path) -> None:
    class Quantizing(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
        def quantize(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"q": tf.quantization.quantize(x, -6.0, 6.0, tf.qint8).output, "y": x + 1}

    module = Quantizing()
    tf.saved_model.save(module, str(tmp_path), signatures=module.quantize)
    model = SavedModelInMemory(tmp_path)
    x = np.array([[1, 2], [-3, 4]], np.float32)
    quantized = model.run("serving_default", {"x": x}, ("q",))["q"]
    assert quantized["qint8"].tolist() == module.quantize(x)["q"].numpy().tolist()
    proto = tf.make_tensor_proto(0)
    proto.ParseFromString(b"".join(tensor_parts(quantized, as_content=True)))
    assert proto.dtype == tf.qint8.as_datatype_enum
    assert proto.tensor_content == quantized.tobytes()

    outputs = model.signatures["serving_default"].outputs
    with pytest.raises(InvalidRequest, match=r"Output 'q' is quantized \(qint8\), .* ask for it by gRPC"):
        check_outputs_writable(outputs)
    check_outputs_writable({"y": outputs["y"]})
    model.close()
