"""SavedModels that tf.saved_model.load refuses as they are: names, optimizers, unknown objects."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto

from app.core.errors import InferenceFailed
from app.runtime import LoadedModel, Runtime, RuntimeOptions, create_runtime, note_of
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.saved_model.session_model import SessionModel

NAMES = [
    ["age", "class"],
    ["from", "lambda"],
    ["None", "True"],
    ["user.id", "user_id"],
    ["a b", "a-b", "a_b"],
    ["args", "kwargs", "self"],
    ["", "x"],
]


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return create_runtime("tensorflow", RuntimeOptions())


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def make_tensorflow_1(path: Path, names: Sequence[str]) -> None:
    """y is the inputs' sum, the first once, the second twice."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = {name: v1.placeholder(tf.float32, [None]) for name in names}
        y = tf.add_n([value * (number + 1.0) for number, value in enumerate(inputs.values())])
        v1.saved_model.simple_save(session, str(path), inputs, {"y": y})


def make_tensorflow_2(path: Path, names: Sequence[str]) -> None:
    """The same as TensorFlow 2 saved it before it sanitised names: those of a function's arguments."""
    made = [f"x{number}" for number in range(len(names))]
    module = tf.Module()

    @tf.function(autograph=False)
    def add(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.add_n([tensors[name] * (number + 1.0) for number, name in enumerate(made)])}

    module.add = add
    specs = {name: tf.TensorSpec([None], tf.float32, name=name) for name in made}
    tf.saved_model.save(module, str(path), signatures=add.get_concrete_function(**specs))
    new = dict(zip(made, names, strict=True))
    with Edited(path) as graph:
        renamed(graph.signature_def["serving_default"].inputs, new)
        for node in graph.object_graph_def.nodes:
            if node.WhichOneof("kind") == "bare_concrete_function":
                node.bare_concrete_function.ClearField("function_spec")
                keywords = node.bare_concrete_function.argument_keywords
                keywords[:] = [new.get(each, each) for each in keywords]
        for function in graph.object_graph_def.concrete_functions.values():
            arguments = function.canonicalized_input_signature.tuple_value.values[1].dict_value.fields
            renamed(arguments, new)
            for name, argument in arguments.items():
                argument.tensor_spec_value.name = name


def renamed(fields: Any, new: dict[str, str]) -> None:
    for old, name in new.items():
        if old in fields:
            fields[name].CopyFrom(fields[old])
            del fields[old]


class Edited:
    """The MetaGraphDef of a SavedModel, written back at the end."""

    def __init__(self, path: Path) -> None:
        self._file = path / "saved_model.pb"
        self._proto = SavedModelProto.FromString(self._file.read_bytes())

    def __enter__(self) -> Any:
        return self._proto.meta_graphs[0]

    def __exit__(self, *_: object) -> None:
        self._file.write_bytes(self._proto.SerializeToString())


def make_scaling(path: Path) -> None:
    """y is 3 times x, by a variable."""

    class Module(tf.Module):
        def __init__(self) -> None:
            self.factor, self.moment = tf.Variable(3.0), tf.Variable(0.5)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def scale(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": x * self.factor}

    module = Module()
    tf.saved_model.save(module, str(path), signatures=module.scale)


def child(graph: Any, name: str) -> int:
    root = graph.object_graph_def.nodes[0]
    return next(each.node_id for each in root.children if each.local_name == name)


def answer(model: LoadedModel) -> list[float]:
    found: list[float] = model.run("serving_default", {"x": np.array([1, 2], np.float32)}, ())["y"].tolist()
    return found


@pytest.mark.parametrize("make", [make_tensorflow_1, make_tensorflow_2])
@pytest.mark.parametrize("names", NAMES, ids=str)
def test_any_name_of_an_input_is_served(make: Any, names: list[str], tmp_path: Path, temporary: Path) -> None:
    make(tmp_path / "1", names)
    model = SavedModel(tmp_path / "1")
    assert sorted(model.signatures["serving_default"].inputs) == sorted(names)
    inputs = {name: np.array([10.0**number, 0], np.float32) for number, name in enumerate(names)}
    expected = float(sum((number + 1) * 10**number for number in range(len(names))))
    for outputs in ((), ("y",)):
        assert model.run("serving_default", inputs, outputs)["y"].tolist() == [expected, 0.0]
    model.close()
    assert not list(temporary.glob("ferry-*"))


@pytest.mark.parametrize("folder", ["m[1]", "back\\slash", "star*", "q?", "{a,b}", "plain"])
def test_a_folder_may_be_named_as_a_pattern(folder: str, tmp_path: Path, temporary: Path) -> None:
    path = tmp_path / folder / "1"
    make_scaling(tmp_path / "made")
    path.parent.mkdir()
    (tmp_path / "made").rename(path)
    model = SavedModel(path)
    assert answer(model) == [3.0, 6.0]
    assert bool(list(temporary.glob("ferry-*"))) is (folder != "plain")
    model.close()
    assert not list(temporary.glob("ferry-*"))


def test_a_pattern_does_not_load_the_variables_of_another_folder(tmp_path: Path) -> None:
    make_scaling(tmp_path / "m1" / "1")
    make_scaling(tmp_path / "made")
    (tmp_path / "made" / "variables" / "variables.index").unlink()
    (tmp_path / "m?").mkdir()
    (tmp_path / "made").rename(tmp_path / "m?" / "1")
    with pytest.raises(Exception, match=r"variables"):
        SavedModel(tmp_path / "m?" / "1")


def test_a_model_with_the_slot_variables_of_its_optimizer_is_served(tmp_path: Path, temporary: Path) -> None:
    make_scaling(tmp_path / "1")
    with Edited(tmp_path / "1") as graph:
        factor, moment = child(graph, "factor"), child(graph, "moment")
        optimizer = graph.object_graph_def.nodes.add()
        optimizer.user_object.identifier = "optimizer"
        optimizer.slot_variables.add(original_variable_node_id=factor, slot_name="m", slot_variable_node_id=moment)
        number = len(graph.object_graph_def.nodes) - 1
        graph.object_graph_def.nodes[0].children.add(node_id=number, local_name="optimizer")
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path / "1"))
    model = SavedModel(tmp_path / "1")
    assert answer(model) == [3.0, 6.0]
    assert note_of(model) == "it is loaded without the slot variables of its optimizer"
    model.close()
    assert not list(temporary.glob("ferry-*"))


def test_what_tensorflow_2_cannot_load_runs_in_a_session(
    runtime: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_scaling(tmp_path / "m" / "1")
    with Edited(tmp_path / "m" / "1") as graph:
        graph.object_graph_def.nodes.add()  # of no kind
    model = runtime.load(tmp_path / "m" / "1")
    assert isinstance(model, SessionModel)
    assert answer(model) == [3.0, 6.0]
    said = "it runs in a session, as tf.saved_model.load failed: Unknown SavedObject type: None."
    assert note_of(model).startswith(said)
    model.close()


def test_what_neither_way_loads_is_refused_with_the_first_reason(runtime: Runtime, tmp_path: Path) -> None:
    make_scaling(tmp_path / "m" / "1")
    with Edited(tmp_path / "m" / "1") as graph:
        graph.object_graph_def.nodes.add()
        graph.graph_def.node[0].op = "NoSuchOperation"
    with pytest.raises(InferenceFailed, match="Unknown SavedObject type"):
        runtime.load(tmp_path / "m" / "1")
