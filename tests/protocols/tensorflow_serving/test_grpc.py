"""Reloading, unknown methods and bugs, live; and real SavedModels through TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode

from app.codecs.protobuf.messages import message_class
from app.core.errors import ModelNotReady, PreconditionFailed
from app.repository.model_config import ModelConfig
from app.repository.version_policy import Specific
from app.runtime import RuntimeOptions
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from tests.support.grpc_live import MODEL, PREDICTION, Live, outputs_of, predict_request, rows, with_live
from tests.support.savedmodels import DTYPES, make_every_dtype


def reload_request(**config: Any) -> Any:
    return message_class("tensorflow.serving.ReloadConfigRequest")(config=config)


ONE_MODEL = reload_request(
    model_config_list={
        "config": [
            {
                "name": "m",
                "base_path": "/models/m",
                "model_version_policy": {"specific": {"versions": [1, 2]}},
                "version_labels": {"stable": 1},
            }
        ]
    }
)


class Reloaded:
    def __init__(self, failure: Exception | None = None) -> None:
        self.configs: list[Sequence[ModelConfig]] = []
        self.failure = failure

    async def __call__(self, configs: Sequence[ModelConfig], /) -> None:
        self.configs.append(configs)
        if self.failure:
            raise self.failure


def test_a_reload_gets_the_list_of_models() -> None:
    reload = Reloaded()

    async def scenario(running: Live) -> None:
        reply = await running.call("HandleReloadConfigRequest", ONE_MODEL, MODEL)
        assert reply.HasField("status")
        assert reply.status.error_code == 0

    with_live(scenario, reload=reload)
    ((config,),) = reload.configs
    assert config == ModelConfig("m", Path("/models/m"), Specific(frozenset({1, 2})), {"stable": 1})


def test_a_reload_that_fails_says_why() -> None:
    async def scenario(running: Live) -> None:
        code, text = await running.failure("HandleReloadConfigRequest", ONE_MODEL, MODEL)
        assert (code, text) == (StatusCode.UNAVAILABLE, "Model m failed to load")

    with_live(scenario, reload=Reloaded(ModelNotReady("Model m failed to load")))


def test_a_reload_of_what_cannot_be_served_is_rejected() -> None:
    async def scenario(running: Live) -> None:
        code, text = await running.failure("HandleReloadConfigRequest", reload_request(custom_model_config={}), MODEL)
        assert code is StatusCode.INVALID_ARGUMENT
        assert "custom_model_config" in text

    with_live(scenario, reload=Reloaded())


def test_a_reload_without_a_list_changes_nothing() -> None:
    """Codes of the peer: model_service_impl.cc. An empty list, given as such, is one."""
    reload = Reloaded()

    async def scenario(running: Live) -> None:
        for empty in (b"", reload_request()):
            code, text = await running.failure("HandleReloadConfigRequest", empty, MODEL)
            assert code is StatusCode.INVALID_ARGUMENT
            assert "holds no model_config_list" in text
        assert reload.configs == []
        await running.call("HandleReloadConfigRequest", reload_request(model_config_list={}), MODEL)
        assert reload.configs == [[]]

    with_live(scenario, reload=reload)


def test_a_reload_that_does_not_fit_what_is_served_is_a_failed_precondition() -> None:
    """server_core.cc: a label of a version that is not available, another platform."""

    async def scenario(running: Live) -> None:
        code, _ = await running.failure("HandleReloadConfigRequest", ONE_MODEL, MODEL)
        assert code is StatusCode.FAILED_PRECONDITION

    with_live(scenario, reload=Reloaded(PreconditionFailed("label")))


def test_a_reload_is_rejected_if_it_is_switched_off() -> None:
    async def scenario(running: Live) -> None:
        code, text = await running.failure("HandleReloadConfigRequest", ONE_MODEL, MODEL)
        assert code is StatusCode.UNIMPLEMENTED
        assert text == "The served models are set by this server's own configuration; calls cannot change them"

    with_live(scenario)


def test_an_unknown_method_is_unimplemented() -> None:
    async def scenario(running: Live) -> None:
        call = running.channel.unary_unary(f"/{PREDICTION}/Dream")
        assert await call(b"").code() is StatusCode.UNIMPLEMENTED

    with_live(scenario)


def test_a_bug_is_not_shown_to_callers(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(running: Live) -> None:
        del running.repository.models  # the next call stumbles over it
        failure = await running.failure("Predict", predict_request({"x": rows(1)}))
        assert failure == (StatusCode.INTERNAL, "Internal error")
        assert [event.code for event in running.finished] == ["INTERNAL"]

    with_live(scenario)
    assert "A bug answered Predict" in caplog.text


@pytest.fixture(scope="module")
def every_dtype(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("models") / "every_dtype" / "1"
    make_every_dtype(path)
    return TensorFlowRuntime(RuntimeOptions()).load(path)


@pytest.mark.parametrize("as_content", [True, False])
def test_every_type_passes_through_tensorflow(every_dtype: Any, as_content: bool) -> None:
    """Arrays over a message's own bytes are read-only, and TensorFlow takes them."""
    inputs = {}
    for name in DTYPES:
        dtype = np.dtype(tf.as_dtype(name).as_numpy_dtype)
        inputs[name] = np.array([b"", b"\x00\xff"], object) if name == "string" else np.array([0, 1]).astype(dtype)

    async def scenario(running: Live) -> None:
        reply = await running.call("Predict", predict_request(inputs, as_content=as_content))
        outputs = outputs_of(reply)
        for name, sent in inputs.items():
            got = outputs[f"{name}_out"]
            assert (got.dtype, got.tolist()) == (sent.dtype, sent.tolist())

    with_live(scenario, ("m", 1, every_dtype), tensor_content=as_content)
