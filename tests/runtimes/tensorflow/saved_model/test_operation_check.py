"""A graph that reaches outside is rejected before anything of it runs. Graphs are real, made and edited here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from app.core.errors import InferenceFailed
from app.runtime import RuntimeOptions
from app.runtimes.tensorflow.operation_libraries.known_libraries import libraries_of
from app.runtimes.tensorflow.private_api import SavedModelProto, operation_definition
from app.runtimes.tensorflow.saved_model import forbidden_operations
from app.runtimes.tensorflow.saved_model.operation_check import ForbiddenOperation, check_operations
from app.runtimes.tensorflow.saved_model.signature_defs import serving_graph
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from tests.awkward.catalog import MODELS
from tests.support import savedmodels

TEXT = tf.TensorSpec([None], tf.string, name="text")


def saved(path: Path, call: Callable[[Any], Any], module: Any = None) -> Path:
    """One signature: text [batch] -> y = call(text)."""
    module = module or tf.Module()
    module.call = tf.function(lambda text: {"y": call(text)}, input_signature=[TEXT])
    tf.saved_model.save(module, str(path), signatures=module.call)
    return path


def edited(path: Path, edit: Callable[[Any], None]) -> Path:
    """The same model, after `edit` of its MetaGraphDef."""
    file = path / "saved_model.pb"
    proto = SavedModelProto.FromString(file.read_bytes())
    edit(proto.meta_graphs[0])
    file.write_bytes(proto.SerializeToString())
    return path


def rejection(path: Path, *allowed: str) -> str:
    with pytest.raises(ForbiddenOperation) as rejected:
        check_operations(serving_graph(path), allowed)
    return str(rejected.value)


def test_every_listed_operation_that_this_tensorflow_has_is_written_as_there() -> None:
    listed = set(forbidden_operations._REASONS) | set(forbidden_operations._BY_ATTRIBUTE)
    gone = {"BigQueryReader", "GcsConfigureBlockCache", "GcsConfigureCredentials", "KafkaDataset", "Rpc", "TryRpc"}
    gone |= {"InitializeTRTResource", "SerializeTRTResource"}  # of builds for GPUs
    gone |= {each for each in listed if any(libraries_of(each))}  # of libraries
    assert {each for each in listed - gone if operation_definition(each) is None} == set()


# --- what serves ---


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_awkward_models_reach_nowhere(model: Any, tmp_path: Path) -> None:
    """Tables filled from assets and assets that are read in each call are among them."""
    model.make(tmp_path / "1")
    check_operations(serving_graph(tmp_path / "1"))


@pytest.mark.parametrize(
    "make",
    [savedmodels.make_tf1, savedmodels.make_half_plus_two, savedmodels.make_counter, savedmodels.make_image_net],
)
def test_what_saves_a_model_does_not_count(make: Callable[[Path], None], tmp_path: Path) -> None:
    """Every SavedModel with variables holds SaveV2 and RestoreV2."""
    make(tmp_path)
    check_operations(serving_graph(tmp_path))


def test_a_function_that_nothing_calls_does_not_count(tmp_path: Path) -> None:
    module = tf.Module()
    module.export = tf.function(written, input_signature=[TEXT])
    check_operations(serving_graph(saved(tmp_path, tf.strings.lower, module)))


def tf1_table(path: Path) -> Path:
    """A TensorFlow 1 model whose table is filled from an asset."""
    tf1 = tf.compat.v1
    vocabulary = path.parent / "vocabulary.txt"
    vocabulary.write_text("a\nb\n")
    with tf.Graph().as_default(), tf1.Session() as session:
        file = tf.constant(str(vocabulary))
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
            ),
            -1,
        )
        text = tf1.placeholder(tf.string, [None], name="text")
        signature = tf1.saved_model.predict_signature_def({"text": text}, {"id": table.lookup(text)})
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            main_op=tf1.tables_initializer(),
        )
        builder.save()
    return path


def test_a_tensorflow_1_table_is_filled_from_an_asset_but_from_no_other_file(tmp_path: Path) -> None:
    def no_asset(graph: Any) -> None:
        del graph.collection_def["saved_model_assets"]

    check_operations(serving_graph(tf1_table(tmp_path / "1")))
    assert "InitializeTableFromTextFileV2" in rejection(edited(tmp_path / "1", no_asset))


# --- what does not ---


def in_a_loop(text: Any) -> Any:
    return tf.map_fn(lambda _: tf.io.read_file("/etc/hostname"), text)


def in_a_branch(text: Any) -> Any:
    return tf.cond(tf.size(text) > 3, lambda: tf.io.read_file("/etc/hostname"), lambda: tf.constant(""))


def in_a_dataset(text: Any) -> Any:
    lines = tf.data.TextLineDataset("/etc/hostname")
    return tf.strings.join([text, lines.reduce(tf.constant(""), lambda all_, line: all_ + line)])


def printed_to_a_file(text: Any) -> Any:
    with tf.control_dependencies([tf.print(text, output_stream="file:///nowhere/at/all")]):
        return tf.identity(text)


def written(text: Any) -> Any:
    with tf.control_dependencies([tf.io.write_file("/nowhere/at/all", text[0])]):
        return tf.identity(text)


def aborted(text: Any) -> Any:
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="no")]):
        return tf.identity(text)


def mapped_memory(text: Any) -> Any:
    read = tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=[1], memory_region_name="/etc/hostname")
    return tf.strings.join([text, tf.strings.as_string(read)])


@pytest.mark.parametrize(
    ("call", "operation", "reason"),
    [
        (lambda text: tf.io.read_file(text[0]), "ReadFile", "reads a file that is no asset of the model"),
        (tf.io.matching_files, "MatchingFiles", "reads a file"),
        (in_a_loop, "ReadFile", "reads a file"),
        (in_a_branch, "ReadFile", "reads a file"),
        (in_a_dataset, "TextLineDataset", "reads a file"),
        (mapped_memory, "ImmutableConst", "reads a file"),
        (written, "WriteFile", "writes files"),
        (printed_to_a_file, "PrintV2", "writes files"),
        (lambda text: tf.py_function(lambda x: x, [text], tf.string), "EagerPyFunc", "calls Python code"),
        (lambda text: tf.numpy_function(lambda x: x, [text], tf.string), "PyFunc", "calls Python code"),
        (aborted, "Abort", "ends the process"),
    ],
)
def test_what_reaches_outside_is_rejected_by_name_and_can_be_allowed(
    call: Callable[[Any], Any], operation: str, reason: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, call)
    text = rejection(path)
    assert f"its operation {operation} (" in text
    assert reason in text
    assert "the setting allowed_operations allows it by name" in text
    check_operations(serving_graph(path), [operation])
    assert operation in rejection(path, "Another")


def with_table(path: Path) -> Path:
    """A table that an asset fills."""
    next(model for model in MODELS if model.name == "vocabulary").make(path)
    return path


def test_a_table_filled_from_a_constant_path_is_rejected(tmp_path: Path) -> None:
    def bind_to_a_constant(graph: Any) -> None:
        objects = graph.object_graph_def
        constant = next(n for n, node in enumerate(objects.nodes) if node.WhichOneof("kind") == "constant")
        name = next(name for name in objects.concrete_functions if "initializer" in name)
        objects.concrete_functions[name].bound_inputs[0] = constant

    assert "InitializeTableFromTextFileV2" in rejection(edited(with_table(tmp_path), bind_to_a_constant))


def test_bound_inputs_that_a_function_has_no_arguments_for_make_no_path_its_own(tmp_path: Path) -> None:
    def bind_more(graph: Any) -> None:
        objects = graph.object_graph_def
        name = next(name for name in objects.concrete_functions if "initializer" in name)
        bound = objects.concrete_functions[name].bound_inputs
        bound.extend([bound[0]] * 3)

    assert "InitializeTableFromTextFileV2" in rejection(edited(with_table(tmp_path), bind_more))


def test_an_attribute_that_a_caller_gives_counts_as_the_worst(tmp_path: Path) -> None:
    def printed(text: Any) -> Any:
        with tf.control_dependencies([tf.print(text)]):
            return tf.identity(text)

    def give_by_the_caller(graph: Any) -> None:
        for function in graph.graph_def.library.function:
            for node in function.node_def:
                if node.op == "PrintV2":
                    node.attr["output_stream"].placeholder = "where"

    path = saved(tmp_path, printed)
    check_operations(serving_graph(path))
    assert "PrintV2" in rejection(edited(path, give_by_the_caller))


@pytest.mark.parametrize("name", ["/etc/hostname", "../../secret", "a/../../b"])
def test_an_asset_outside_of_the_model_is_rejected(name: str, tmp_path: Path) -> None:
    def move(graph: Any) -> None:
        graph.asset_file_def[0].filename = name

    assert rejection(edited(with_table(tmp_path), move)) == f"its asset {name!r} lies outside the folder assets"


def test_the_objects_signatures_count_whatever_the_signature_defs_say(tmp_path: Path) -> None:
    """TensorFlow calls those of the objects."""

    def hide(graph: Any) -> None:
        graph.signature_def["serving_default"].outputs["y"].name = "serving_default_text:0"

    assert "WriteFile" in rejection(edited(saved(tmp_path, written), hide))


def test_a_path_from_the_checkpoint_loader_is_its_own_only_where_variables_are_restored(tmp_path: Path) -> None:
    def read_at_each_call(graph: Any) -> None:
        restore = next(node for node in graph.graph_def.node if node.op == "RestoreV2")
        for output in graph.signature_def["serving_default"].outputs.values():
            output.name = f"{restore.name}:0"

    savedmodels.make_tf1(tmp_path)
    assert "RestoreV2" in rejection(edited(tmp_path, read_at_each_call))


def test_a_function_that_tensorflow_may_call_instead_counts(tmp_path: Path) -> None:
    """The implementation selector swaps functions that implement the same."""

    def implement_the_same(graph: Any) -> None:
        for function in graph.graph_def.library.function:
            if "wrapper" in function.signature.name or any(node.op == "WriteFile" for node in function.node_def):
                function.attr["api_implements"].s = b"same"

    module = tf.Module()
    module.other = tf.function(written, input_signature=[TEXT])
    path = edited(saved(tmp_path, tf.strings.lower, module), implement_the_same)
    assert "WriteFile" in rejection(path)


class Writing(tf.saved_model.experimental.TrackableResource):  # type: ignore[misc] # TensorFlow has no types
    """Writes a file when it is initialized: while the model loads."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def _create_resource(self) -> Any:
        return tf.raw_ops.StackV2(max_size=1, elem_type=tf.int32)

    def _initialize(self) -> Any:
        tf.io.write_file(self._file, "written")

    def _destroy_resource(self) -> None: ...


def test_nothing_of_a_rejected_graph_runs_and_the_model_is_not_loaded(tmp_path: Path) -> None:
    file = tmp_path / "file"
    module = tf.Module()
    module.resource = Writing(str(file))
    path = tmp_path / "m" / "1"

    def call(text: Any) -> Any:
        with tf.control_dependencies([tf.raw_ops.StackPushV2(handle=module.resource.resource_handle, elem=1)]):
            return tf.identity(text)

    saved(path, call, module)
    file.unlink(missing_ok=True)
    with pytest.raises(InferenceFailed, match=r"^m/1 cannot be loaded: its operation WriteFile .* writes files"):
        TensorFlowRuntime(RuntimeOptions()).load(path)
    assert not file.exists()
    TensorFlowRuntime(RuntimeOptions(allowed_operations=("WriteFile",))).load(path).close()
    assert file.read_text() == "written", "the test would see a file that is written"
