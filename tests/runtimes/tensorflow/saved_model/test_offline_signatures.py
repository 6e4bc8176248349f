"""Signatures without loading; the oracle is the loaded model."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.core.errors import InferenceFailed, ServingError
from app.core.inference import ModelSignature
from app.runtime import RuntimeOptions, offline_signatures_of
from app.runtimes.tensorflow.saved_model.offline_signatures import offline_signatures
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from tests.runtimes.broken_savedmodels import make_corrupted_graph, make_empty_graph, make_nothing
from tests.support import savedmodels, tf1_savedmodels
from tests.support.savedmodels import Make


def by_shapes(signature: ModelSignature) -> ModelSignature:
    """Without what only a loaded graph says."""
    return replace(signature, writes=(), draws=(), loops=False, reads_files=False)


@pytest.mark.parametrize(
    "make",
    [
        savedmodels.make_half_plus_two,
        savedmodels.make_with_defaults,
        savedmodels.make_every_dtype,
        savedmodels.make_unknown_rank,
        savedmodels.make_several_signatures,
        savedmodels.make_ragged,
        savedmodels.make_ragged_output,
        savedmodels.make_sparse,
        savedmodels.make_tf1,
        tf1_savedmodels.make_half_plus_three,
        tf1_savedmodels.make_half_plus_three_of_0_12,
        tf1_savedmodels.make_unfed,
    ],
)
def test_they_are_those_of_the_loaded_model(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "m" / "1"
    make(path)
    loaded = TensorFlowRuntime(RuntimeOptions()).load(path)
    found = offline_signatures(path)
    assert {name: by_shapes(each) for name, each in loaded.signatures.items()} == found
    assert {name: each.defaults.keys() for name, each in loaded.signatures.items()} == {
        name: each.defaults.keys() for name, each in found.items()
    }
    loaded.close()


@pytest.mark.parametrize("make", [make_nothing, make_corrupted_graph, make_empty_graph])
def test_what_cannot_be_loaded_is_told_as_by_the_load(tmp_path: Path, make: Make) -> None:
    path = tmp_path / "m" / "1"
    make(path)
    with pytest.raises(ServingError) as loading:
        TensorFlowRuntime(RuntimeOptions()).load(path)
    with pytest.raises(InferenceFailed) as offline:
        offline_signatures(path)
    assert (type(offline.value), str(offline.value)) == (type(loading.value), str(loading.value))


def test_the_runtime_is_asked_by_its_name(tmp_path: Path) -> None:
    make_nothing(tmp_path)
    read = offline_signatures_of("tensorflow")
    assert read is not None
    with pytest.raises(InferenceFailed):
        read(tmp_path, (), ())
    assert offline_signatures_of("another") is None
