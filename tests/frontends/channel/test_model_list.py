"""A list of models arrives as it was sent."""

from pathlib import Path

import pytest

from app.frontends.channel.model_list import MODEL_LIST
from app.repository.model_config import ModelConfig
from app.repository.version_policy import All, Latest, Specific, VersionPolicy


@pytest.mark.parametrize("policy", [All(), Latest(), Latest(3), Specific(frozenset({1, 7})), Specific(frozenset())])
def test_the_engine_reads_the_list_that_a_frontend_was_asked_for(policy: VersionPolicy) -> None:
    configs = [ModelConfig("a", Path("/models/a"), policy, {"stable": 1}, "tensorflow"), ModelConfig("b", Path("b"))]
    assert MODEL_LIST.validate_json(MODEL_LIST.dump_json(configs)) == configs
