"""TensorFlow's internals work, are used in one file, and Ferry does without them where they do not work."""

import logging
import re
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.time_budget import TimeBudget
from app.runtime import VariantOptions
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.support import savedmodels

FEATURES = (
    private_api.DIRECT_EXECUTION,
    private_api.GRAPH_REWRITING,
    private_api.FREEING_GRAPHS,
    private_api.OPERATION_DEFINITIONS,
    private_api.SESSION_CALLABLES,
)
PRIVATE_USE = re.compile(
    r"tensorflow\.(python|core)\b|(?<!private_api)\.(captures|capture)\b|_inference_function|__internal__|_make_callable"
)


@pytest.fixture
def untested() -> Iterator[None]:
    """What works is tried again in this test, and again in the next."""
    private_api.works.cache_clear()
    yield
    private_api.works.cache_clear()


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_works_with_this_tensorflow(feature: str) -> None:
    assert private_api.works(feature)


def test_no_other_file_uses_internals_of_tensorflow() -> None:
    root = Path(private_api.__file__).parents[3]
    users = [file for file in (root / "app").rglob("*.py") if PRIVATE_USE.search(file.read_text())]
    assert users == [Path(private_api.__file__)]


def gone(*_: Any) -> Any:
    raise AttributeError("it is gone")


def direct_without_rejections(graph: Any, _device: str | None = None) -> Callable[[Any], Any]:
    """Does not reject what the function rejects."""
    return lambda tensors: [tensors[0] * abs(tensors[1].numpy()), 2 * abs(tensors[1].numpy()) + [1.0, 2.0]]


@pytest.mark.parametrize(
    ("feature", "internal", "replacement"),
    [
        (private_api.DIRECT_EXECUTION, "direct_executor", gone),
        (private_api.DIRECT_EXECUTION, "direct_executor", lambda *_: lambda tensors: tensors),
        (private_api.DIRECT_EXECUTION, "direct_executor", lambda *_: direct_without_rejections(None)),
        (private_api.GRAPH_REWRITING, "inlined", gone),
        (private_api.GRAPH_REWRITING, "inlined", lambda traced: traced.graph.as_graph_def()),
        (private_api.GRAPH_REWRITING, "with_constants", lambda traced: private_api.inlined(traced)),  # noqa: PLW0108 - found late
        (private_api.GRAPH_REWRITING, "captures", lambda traced: []),
        (private_api.FREEING_GRAPHS, "_dismantle_function", gone),
        (private_api.FREEING_GRAPHS, "_dismantle_function", lambda graph: None),
        (private_api.OPERATION_DEFINITIONS, "_operation_definition", gone),
        (private_api.OPERATION_DEFINITIONS, "_operation_definition", lambda operation: None),
        (private_api.SESSION_CALLABLES, "_session_callable", gone),
        (private_api.SESSION_CALLABLES, "_session_callable", lambda *_: lambda values: values),
        (
            private_api.SESSION_CALLABLES,
            "_session_callable",
            lambda *_: lambda values: [values[0] - values[1], np.array([3.0])],
        ),
    ],
)
@pytest.mark.usefixtures("untested")
def test_what_is_gone_or_behaves_differently_is_told_once_and_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, feature: str, internal: str, replacement: Any
) -> None:
    monkeypatch.setattr(private_api, internal, replacement)
    with caplog.at_level(logging.WARNING):
        private_api.check_all()
        private_api.check_all()
    assert {name: private_api.works(name) for name in FEATURES} == {name: name != feature for name in FEATURES}
    (message,) = caplog.messages
    assert re.match(rf"TensorFlow [\d.]+: {feature} does not work \(\w+: .+\); .+", message)


@pytest.mark.parametrize("wanted", ["auto", "frozen", "inline", "xla"])
def test_models_run_plain_and_answer_the_same_without_internals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: str
) -> None:
    savedmodels.make_image_net(tmp_path)
    image = {"image": np.random.default_rng(1).random([4, 8, 8], np.float32)}
    expected = SavedModel(tmp_path).run("serving_default", image, ())["probabilities"]

    monkeypatch.setattr(private_api, "works", lambda feature: False)
    model = SavedModel(tmp_path, VariantOptions(wanted))
    assert {choice.variant for choice in model.tune((1, 4), lambda *_: None, TimeBudget(inf))} == {"plain"}
    assert not model.why_one_replica(), "its operations are listed, so that it is known to keep no state"
    np.testing.assert_array_equal(model.run("serving_default", image, ())["probabilities"], expected)


def test_an_unlisted_operation_counts_as_stateful_without_definitions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    savedmodels.make_counter(tmp_path)
    monkeypatch.setattr(private_api, "works", lambda feature: False)
    assert SavedModel(tmp_path).why_one_replica() == "it writes state: AssignAddVariableOp"
