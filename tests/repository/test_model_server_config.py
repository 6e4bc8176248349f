from pathlib import Path

import pytest

from app.core.errors import InvalidRequest
from app.repository.model_config import ModelConfig
from app.repository.model_server_config import read_model_configs
from app.repository.version_policy import All, Latest, Specific


def read(folder: Path, text: str) -> list[ModelConfig]:
    file = folder / "models.config"
    file.write_text(text)
    return list(read_model_configs(file))


def one(folder: Path, text: str) -> ModelConfig:
    (model,) = read(folder, f'model_config_list {{ config {{ name: "m" base_path: "/models/m" {text} }} }}')
    return model


def test_a_model_is_read_with_all_that_it_says(tmp_path: Path) -> None:
    text = """
    model_platform: "tensorflow"
    model_version_policy { specific { versions: 1 versions: 2 } }
    version_labels { key: "stable" value: 1 }
    version_labels { key: "canary" value: 2 }
    """
    policy = Specific(frozenset({1, 2}))
    assert one(tmp_path, text) == ModelConfig("m", Path("/models/m"), policy, {"stable": 1, "canary": 2}, "tensorflow")


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", Latest(1)),
        ("model_version_policy {}", Latest(1)),
        ("model_version_policy { latest {} }", Latest(1)),
        ("model_version_policy { latest { num_versions: 3 } }", Latest(3)),
        ("model_version_policy: { all: {} }", All()),
    ],
)
def test_policies(text: str, policy: object, tmp_path: Path) -> None:
    assert one(tmp_path, text).policy == policy


@pytest.mark.parametrize(
    ("text", "platform"),
    [("model_type: TENSORFLOW", "tensorflow"), ("model_type: OTHER", "other"), ('model_platform: "x"', "x")],
)
def test_platforms(text: str, platform: str, tmp_path: Path) -> None:
    assert one(tmp_path, text).platform == platform


def test_an_empty_file_is_no_models_at_the_start_and_rejected_later(tmp_path: Path) -> None:
    """An editor truncates a file before it writes: for that moment it must not unload every model."""
    file = tmp_path / "models.config"
    for text in ("", "# nothing yet\n"):
        file.write_text(text)
        assert read_model_configs(file, at_start=True) == []
        with pytest.raises(InvalidRequest, match="holds no model_config_list; to serve no models, give an empty one"):
            read_model_configs(file)


def test_a_list_may_be_empty_or_long(tmp_path: Path) -> None:
    assert read(tmp_path, "model_config_list: {}") == []
    models = read(
        tmp_path, 'model_config_list: { config: { name: "a", base_path: "/a" }, config: { name: "b", base_path: "/b" }}'
    )
    assert [model.name for model in models] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "rejection"),
    [
        ("model_config_list {", "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:"),
        ("custom_model_config {}", "custom_model_config is not supported; use model_config_list"),
        (
            'model_config_list { config { name: "m" logging_config {} } }',
            "Model m: logging_config is not supported; leave it out",
        ),
        (
            'model_config_list { config { name: "m" model_version_policy { specific {} } } }',
            "Model m: model_version_policy specific names no versions",
        ),
    ],
)
def test_what_cannot_be_served_is_rejected(text: str, rejection: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        read(tmp_path, text)
    assert str(rejected.value).startswith(rejection)


def test_a_file_of_bytes_is_no_list(tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match=r"^Error parsing text-format tensorflow\.serving\.ModelServerConfig: "):
        read_model_configs(file)
