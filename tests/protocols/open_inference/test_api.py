from __future__ import annotations

import pytest

from app.core.errors import InvalidRequest, Unsupported
from app.protocols.open_inference.api import reject_cuda_memory
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
    for act in (lambda: served.regions, lambda: reject_cuda_memory(None)):
        with pytest.raises(Unsupported):
            act()


def test_a_model_that_is_not_ready_is_not_an_error():
    assert not World().served.model_ready("q")
    assert World().served.model_ready("m")
