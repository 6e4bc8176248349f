from __future__ import annotations

import asyncio

import pytest

from app.core.errors import InvalidRequest, ModelNotFound, ModelNotReady, Unsupported
from app.protocols.open_inference.api import cuda_regions, reject_cuda_memory
from tests.support.open_inference_world import World, sum_model


@pytest.mark.parametrize("version", ["", "1", "001"])
def test_versions_are_numbers_in_words(version):
    assert World(sum_model(version=1)).served.resolve("m", version).version == 1


@pytest.mark.parametrize("version", ["x", "-1", "1.0", "٣", " 1", str(2**63), "9" * 5000])
def test_malformed_versions_are_rejected(version):
    with pytest.raises(InvalidRequest, match="Model version"):
        World().served.resolve("m", version)


def test_shared_memory_that_is_off_is_not_supported():
    served = World().served
    for act, text in (
        (lambda: served.regions, r"\(setting allow_shared_memory\)\. Send tensors in the message: as binary data"),
        (lambda: reject_cuda_memory(None), "use system shared memory"),
    ):
        with pytest.raises(Unsupported, match=text):
            act()


def test_there_is_no_region_of_cuda_memory():
    assert cuda_regions("") == []
    with pytest.raises(InvalidRequest, match="Unable to find cuda shared memory region: 'r'"):
        cuda_regions("r")


@pytest.mark.parametrize(("name", "version", "text"), [("q", "", "'q'"), ("m", "9", "'m' version 9")])
def test_unknown_models_are_rejected_in_the_protocols_words(name, version, text):
    with pytest.raises(ModelNotFound, match=f"^Request for unknown model: {text} is not found$"):
        World().served.resolve(name, version)


def test_clients_find_that_a_load_failed_in_its_text():
    """Triton's examples of model control look for "failed to load"."""
    served = World().served
    with pytest.raises(
        ModelNotReady, match=r"^failed to load 'broken': Model broken failed to load: no graph$"
    ) as told:
        asyncio.run(served.load_model("broken", {}))
    assert told.value.retry_after_s == 1.0
    with pytest.raises(ModelNotFound, match=r"^failed to unload 'q': Model q is not in the repository$"):
        asyncio.run(served.unload_model("q"))


def test_a_model_that_is_not_ready_is_not_an_error():
    assert not World().served.model_ready("q")
    assert World().served.model_ready("m")


def test_a_pipeline_that_waits_for_a_model_is_not_ready():
    pipeline = sum_model()
    served = World(pipeline).served
    pipeline.missing = "waits for the model small (not there)"
    assert not served.model_ready("m")
    pipeline.missing = ""
    assert served.model_ready("m")
