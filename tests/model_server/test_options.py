from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.core.errors import InvalidRequest
from app.model_server.options import DIFFERENCES, from_environment, models_of, settings_of
from app.repository.model_config import ModelConfig
from app.repository.model_list_checks import check_names_and_paths

MODELS = 'model_config_list { config { name: "m" base_path: "/models/m" } }'


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def settings(**given: Any) -> Settings:
    return Settings(**DIFFERENCES, **settings_of(given))


# --- which models ---


def test_the_images_variables_stand_for_its_flags() -> None:
    both = {"rest_api_port": 8501, "model_name": "n", "model_base_path": "/b/n"}
    assert from_environment({"MODEL_NAME": "n", "MODEL_BASE_PATH": "/b", "HOME": "/"}) == both
    assert from_environment({"MODEL_NAME": "n"})["model_base_path"] == "/models/n"
    assert from_environment({"MODEL_BASE_PATH": "/b"})["model_base_path"] == "/b/model"
    assert from_environment({"MODEL_NAME": "", "HOME": "/"}) == {}


def test_one_model_by_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = models_of({"model_name": "m", "model_base_path": "/models/m"})
    assert models.configs == [ModelConfig("m", Path("/models/m"))]
    assert models.read is None
    monkeypatch.chdir(tmp_path)
    assert models_of({"model_base_path": "m"}).configs == [ModelConfig("default", tmp_path / "m")]


def test_models_by_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, "models.config", MODELS)
    given = {"model_config_file": file, "model_base_path": "/not/used"}
    models = models_of(given)
    assert models.configs == [ModelConfig("m", Path("/models/m"))]
    assert (models.poll_interval_s, models.labels_anywhere) == (0, False)
    assert models.read is not None
    written(tmp_path, "models.config", "model_config_list {}")
    assert models.read() == []
    more = {"model_config_file_poll_wait_seconds": 3, "allow_version_labels_for_unavailable_models": True}
    models = models_of({**given, **more})
    assert (models.poll_interval_s, models.labels_anywhere) == (3, True)


def test_some_model_must_be_named() -> None:
    with pytest.raises(InvalidRequest, match=r"^give --model_config_file, or --model_base_path with --model_name$"):
        models_of({"model_name": "m"})


@pytest.mark.parametrize("path", ["gs://bucket/m", "s3://bucket/m", "hdfs://host/m"])
def test_remote_storage_is_rejected_instead_of_waited_for(path: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="expected a local folder: mount the storage"):
        models_of({"model_base_path": path})
    text = f'model_config_list {{ config {{ name: "m" base_path: "{path}" model_platform: "tensorflow" }} }}'
    configs = models_of({"model_config_file": written(tmp_path, "models.config", text)}).configs
    with pytest.raises(InvalidRequest, match="Expected model m to have an absolute local base_path"):
        check_names_and_paths(configs)


# --- settings ---


def test_without_flags_tensorflow_servings_defaults_hold() -> None:
    found = settings()
    assert (found.grpc_port, found.rest, found.request_timeout_ms) == (8500, False, 30_000)
    assert (found.tensor_content, found.strict_shapes, found.wait_for_models) == (False, False, True)
    assert found.grpc_max_message_bytes == 2**31 - 1
    assert (found.cors, found.metrics_path, found.warm_up, found.poll_interval_s) == (False, "", True, 1)
    assert found.batching, "Ferry's default is the better one"
    assert (found.intra_op_threads, found.inter_op_threads) == (0, 0)
    assert found.max_queue_size == 0, "no limit in rows there, so none here"


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("port", 1, {"grpc_port": 1}),
        ("grpc_socket_path", "/s", {"grpc_unix_socket": "/s"}),
        ("rest_api_port", 1, {"rest_port": 1, "rest": True}),
        ("rest_api_timeout_in_ms", 7, {"request_timeout_ms": 7}),
        ("rest_api_enable_cors_support", True, {"cors": True}),
        ("enable_batching", False, {"batching": False}),
        ("enable_batching", True, {"batching": True, "max_batch_size": Settings().max_batch_size}),
        ("enable_per_model_batching_parameters", True, {"per_model_batching": True}),
        ("file_system_poll_wait_seconds", 0, {"poll_interval_s": 0}),
        ("file_system_poll_wait_seconds", -1, {"poll_interval_s": 0}),
        ("tensorflow_session_parallelism", 3, {"intra_op_threads": 3, "inter_op_threads": 3}),
        ("tensorflow_intra_op_parallelism", 3, {"intra_op_threads": 3, "inter_op_threads": 0}),
        ("tensorflow_inter_op_parallelism", 3, {"intra_op_threads": 0, "inter_op_threads": 3}),
        ("enable_model_warmup", False, {"warm_up": False}),
        ("enable_serialization_as_tensor_content", True, {"tensor_content": True}),
        ("prefer_tflite_model", True, {"runtime": "litert"}),
        ("prefer_tflite_model", False, {"runtime": "tensorflow"}),
    ],
)
def test_each_flag_has_its_settings(flag: str, value: Any, expected: dict[str, Any]) -> None:
    found = settings(**{flag: value})
    assert {name: getattr(found, name) for name in expected} == expected


def test_batching_parameters(tmp_path: Path) -> None:
    text = """
    max_batch_size { value: 8 } batch_timeout_micros { value: 500 } max_enqueued_batches { value: 4 }
    num_batch_threads { value: 2 } allowed_batch_sizes: 4 allowed_batch_sizes: 8
    """
    found = settings(enable_batching=True, batching_parameters_file=written(tmp_path, "b", text))
    assert (found.max_batch_size, found.batch_sizes, found.max_batch_delay_ms) == (8, [4, 8], 0.5)
    assert (found.max_queue_size, found.batches_in_flight) == (32, 2)


@pytest.mark.parametrize(
    ("text", "rows", "queue"),
    [
        ("", 64, 0),
        ("max_enqueued_batches { value: 0 }", 64, 64),
        ("max_enqueued_batches { value: 3 }", 64, 192),
        ("max_batch_size { value: 100000 }", 100_000, 0),
    ],
)
def test_the_queue_is_limited_by_memory_or_holds_at_least_a_batch(
    text: str, rows: int, queue: int, tmp_path: Path
) -> None:
    found = settings(enable_batching=True, batching_parameters_file=written(tmp_path, "b", text))
    assert (found.max_batch_size, found.max_queue_size) == (rows, queue)


def test_lengths_are_not_padded_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = written(tmp_path, "b", "pad_variable_length_inputs: true")
    settings_of({"enable_batching": True, "batching_parameters_file": file})
    assert [record.getMessage() for record in caplog.records] == [
        "pad_variable_length_inputs does nothing here: requests of different length share a batch where padding "
        "does not change the model's answers"
    ]


@pytest.mark.parametrize("given", [{}, {"enable_batching": False}])
def test_parameters_need_batching(given: dict[str, Any], tmp_path: Path) -> None:
    file = written(tmp_path, "b", "")
    with pytest.raises(InvalidRequest, match="is set without setting --enable_batching to true"):
        settings_of({"batching_parameters_file": file, **given})


def test_the_metrics_page(tmp_path: Path) -> None:
    file = written(tmp_path, "m", 'prometheus_config { enable: true path: "/p" }')
    assert settings(monitoring_config_file=file).metrics_path == "/p"


def test_alts_is_rejected_rather_than_left_out() -> None:
    assert settings(use_alts_credentials=False)
    with pytest.raises(InvalidRequest, match="--use_alts_credentials is not supported"):
        settings_of({"use_alts_credentials": True})
