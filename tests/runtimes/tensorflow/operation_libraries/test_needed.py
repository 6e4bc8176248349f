"""What a graph lacks, and what its error says: which package has the operation, which version fits, and the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from app.core.errors import InferenceFailed
from app.runtime import RuntimeOptions
from app.runtimes.tensorflow.operation_libraries import needed
from app.runtimes.tensorflow.operation_libraries.known_libraries import LIBRARIES, Library, known_as, libraries_of
from app.runtimes.tensorflow.operation_libraries.needed import OperationsMissing, missing_operations, needed_libraries
from app.runtimes.tensorflow.operation_libraries.shared_libraries import LIBRARIES_HERE
from app.runtimes.tensorflow.private_api import SavedModelProto
from app.runtimes.tensorflow.saved_model.offline_signatures import offline_signatures
from app.runtimes.tensorflow.saved_model.operation_check import ForbiddenOperation, check_operations
from app.runtimes.tensorflow.saved_model.signature_defs import serving_graph
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from tests.support.savedmodels import make_half_plus_two

HERE = ".".join(tf.__version__.split(".")[:2])


def _edited(path: Path, edit: Callable[[Any], None]) -> Path:
    file = path / "saved_model.pb"
    proto = SavedModelProto.FromString(file.read_bytes())
    edit(proto.meta_graphs[0])
    file.write_bytes(proto.SerializeToString())
    return path


def asking_for(path: Path, operation: str, *, called: bool = True) -> Path:
    """A model whose graph has another operation: in place of its addition, or in a function that nothing calls."""
    make_half_plus_two(path)

    def edit(meta_graph: Any) -> None:
        library = meta_graph.graph_def.library
        if not called:
            function = library.function.add()
            function.signature.name = "nobody_calls_it"
            function.node_def.add(name="n", op=operation)
            return
        added = [node for function in library.function for node in function.node_def if node.op == "AddV2"]
        assert added
        for node in added:
            node.op = operation

    return _edited(path, edit)


def _told(path: Path) -> str:
    with pytest.raises(InferenceFailed) as failed:
        TensorFlowRuntime(RuntimeOptions()).load(path)
    with pytest.raises(InferenceFailed) as offline:
        offline_signatures(path)
    assert str(offline.value) == str(failed.value)
    text = str(failed.value)
    assert "\n" not in text
    assert len(text) < 340
    return text.partition(" cannot be loaded: ")[2]


def test_an_operation_that_no_table_has_is_told_with_the_setting(tmp_path: Path) -> None:
    assert _told(asking_for(tmp_path / "m" / "1", "BrandNewOp")) == (
        f"its operation BrandNewOp is neither in TensorFlow {HERE} nor in a library that Ferry knows; name the "
        "library that has it in the setting operation_libraries"
    )


def test_a_library_that_fits_no_such_tensorflow_is_named(tmp_path: Path) -> None:
    assert _told(asking_for(tmp_path / "m" / "1", "IO>DecodeWebP")) == (
        "its operation IO>DecodeWebP is in tensorflow-io, which is not installed; no version is known that fits "
        f"TensorFlow {HERE}: 0.37.* is for TensorFlow 2.16"
    )


def test_a_function_that_nothing_calls_counts_as_tensorflow_refuses_it_too(tmp_path: Path) -> None:
    path = asking_for(tmp_path / "m" / "1", "BrandNewOp", called=False)
    assert "its operation BrandNewOp is neither" in _told(path)
    with pytest.raises(Exception, match="BrandNewOp"):  # of any type, by version
        tf.saved_model.load(str(path))


def test_functions_that_are_called_by_name_are_no_operations(tmp_path: Path) -> None:
    make_half_plus_two(tmp_path / "1")
    meta_graph = serving_graph(tmp_path / "1")
    assert missing_operations(meta_graph) == []
    assert needed_libraries(meta_graph) == {}
    caller = meta_graph.graph_def.library.function.add()
    caller.signature.name = "caller"
    caller.node_def.add(name="n", op=meta_graph.graph_def.library.function[0].signature.name)
    assert missing_operations(meta_graph) == []


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (
            Library("other-text", "other_text", (), extra="text"),
            f"which is not installed; version {HERE}.* fits TensorFlow {HERE}: pip install 'ferry-serving[text]'",
        ),
        (
            Library("other-ops", "other_ops", (), versions={"2.1": "0.5.*", HERE: "1.7.*"}),
            f"which is not installed; version 1.7.* fits TensorFlow {HERE}: pip install 'other-ops==1.7.*'",
        ),
        (
            Library("numpy", "numpy", (), versions={HERE: "0.1"}),
            f"; version 0.1 fits TensorFlow {HERE}: pip install 'numpy==0.1'",
        ),
    ],
)
def test_the_advice_names_version_and_command(library: Library, said: str) -> None:
    text = needed._advice("AnOperation", [library])
    assert text.startswith(f"its operation AnOperation is in {library.package}, ")
    assert text.endswith(said)
    assert ("is installed" in text) == (library.package == "numpy")


def test_the_first_library_that_fits_is_advised() -> None:
    old, new = Library("old", "old", (), versions={"1.0": "9.*"}), Library("new", "new", ())
    assert "is in new, " in needed._advice("AnOperation", [old, new])


def test_an_installed_library_of_another_tensorflow_is_not_taken() -> None:
    library = Library("numpy", "numpy", ("__init__.py",), versions={HERE: "0.1"})
    assert needed.installed(library) is None
    found = needed.installed(library, of_any_version=True)
    assert found is not None
    assert found.files[0].endswith("numpy/__init__.py")


# --- the table ---


def test_no_operation_of_the_table_is_tensorflows_own() -> None:
    own = set(dir(tf.raw_ops)) - {each for library in LIBRARIES for each in library.operations}
    assert not [each for library in LIBRARIES for each in library.operations if hasattr(tf.raw_ops, each)]
    assert not [each for each in own for library in LIBRARIES if library.has(each)]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.package)
def test_each_library_is_found_by_its_names_and_says_what_fits(library: Library) -> None:
    assert known_as(library.package) is library
    assert known_as(library.module) is library
    assert library.files
    assert library.prefix or library.operations
    assert library.fitting("2.19.0") or library.newest
    version = library.fitting(tf.__version__)
    assert not version or library.fits(version.replace("*", "0"), tf.__version__)
    assert not library.fits("0.0.1", tf.__version__)


@pytest.mark.parametrize(
    ("operation", "packages"),
    [
        ("SentencepieceTokenizeOp", ["tensorflow-text"]),
        ("TFText>NgramsStringJoin", ["tensorflow-text"]),
        ("SimpleMLInferenceOpWithHandle", ["ydf-tf", "tensorflow-decision-forests"]),
        ("Addons>Resampler", ["tensorflow-addons"]),
        ("Scann>ScannSearchBatched", ["scann"]),
        ("MatMul", []),
    ],
)
def test_operations_are_looked_up(operation: str, packages: list[str]) -> None:
    assert [library.package for library in libraries_of(operation)] == packages


# --- what they may do ---


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ("CaseFoldUTF8", ""),
        ("IO>DecodeWebP", ""),
        ("IO>FileRead", "of tensorflow-io may reach files or connections"),
        ("TFRA>RedisTableFind", "of tensorflow-recommenders-addons may reach files or connections"),
        ("SimpleMLLoadModelFromPathWithHandle", "reads a forest that is no asset of the model"),
    ],
)
def test_operations_of_libraries_are_dangerous_unless_the_table_says_otherwise(
    operation: str, why: str, tmp_path: Path
) -> None:
    meta_graph = serving_graph(asking_for(tmp_path / "1", operation))
    if not why:
        check_operations(meta_graph)
        return
    with pytest.raises(ForbiddenOperation, match="allowed_operations") as rejected:
        check_operations(meta_graph)
    assert why in str(rejected.value)
    check_operations(meta_graph, [operation])


def test_operations_of_a_library_that_nobody_knows_are_dangerous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta_graph = serving_graph(asking_for(tmp_path / "1", "BrandNewOp"))
    check_operations(meta_graph)  # it is nowhere, so it cannot run
    monkeypatch.setattr(LIBRARIES_HERE, "operations", frozenset({"BrandNewOp"}))
    with pytest.raises(ForbiddenOperation, match=r"is of a library that Ferry does not know.*allowed_operations"):
        check_operations(meta_graph)
    check_operations(meta_graph, ["BrandNewOp"])


def test_a_missing_library_is_told_before_what_it_may_do(tmp_path: Path) -> None:
    with pytest.raises(OperationsMissing):
        needed_libraries(serving_graph(asking_for(tmp_path / "1", "IO>FileRead")))
