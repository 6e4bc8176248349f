import pytest

from app import runtime
from app.runtime import RuntimeOptions, create_runtime, runtime_names
from tests.support.fakes import FakeRuntime


def test_tensorflow_is_registered() -> None:
    assert "tensorflow" in runtime_names()


def test_a_runtime_is_made_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtime._REGISTRY, "fake", "tests.support.fakes:FakeRuntime")
    made = create_runtime("fake", RuntimeOptions(intra_op_threads=3))
    assert isinstance(made, FakeRuntime)
    assert made.options.intra_op_threads == 3
