import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import PREFIX, Settings
from app.config.sources import SettingsError, flag_of, load_settings, variable


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


def rejection(overrides: Mapping[str, Any] | None = None, config: Path | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(overrides or {}, config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def yaml(folder: Path, text: str) -> Path:
    file = folder / "ferry.yaml"
    file.write_text(text)
    return file


def test_without_sources_the_defaults_hold() -> None:
    settings = load_settings({})
    assert settings == Settings()
    assert settings.rest_port == 8501
    assert settings.models == Path("models")


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = yaml(tmp_path, "rest_port: 3\nhost: file\nlog_level: debug\n")
    monkeypatch.setenv("FERRY_REST_PORT", "2")
    monkeypatch.setenv("FERRY_HOST", "environment")
    settings = load_settings({"rest_port": 1}, file)
    assert (settings.rest_port, settings.host, settings.log_level) == (1, "environment", "debug")


def test_the_file_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_CONFIG", str(yaml(tmp_path, "rest_port: 3")))
    assert load_settings({}).rest_port == 3
    other = tmp_path / "other.yaml"
    other.write_text("rest_port: 4")
    assert load_settings({}, other).rest_port == 4


def test_an_empty_variable_and_an_empty_file_set_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_REST_PORT", "")
    monkeypatch.setenv("FERRY_CONFIG", "")
    assert load_settings({}) == Settings()
    assert load_settings({}, yaml(tmp_path, "")) == Settings()


def test_a_file_is_no_models_folder_but_a_folder_may_come_later(tmp_path: Path) -> None:
    file = yaml(tmp_path, "")
    assert rejection({"models": str(file)}) == f"--models is {str(file)!r}, but should be a folder, not the file {file}"
    assert load_settings({"models": str(tmp_path / "later")}).models == tmp_path / "later"
    assert load_settings({"models": "later"}).models == Path("later")


@pytest.mark.parametrize("url", ["s3://bucket/models", "gs://b", "hdfs://host:9000/models", "abfss://c@a/m"])
def test_a_url_is_no_models_folder(url: str) -> None:
    scheme = url.partition("//")[0]
    assert rejection({"models": url}) == (
        f"--models is {url!r}, but should be a folder of this machine: mount what is at {scheme}//, or copy it into a "
        "folder first"
    )


def test_a_folder_that_looks_like_a_url_is_one_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert load_settings({"models": "s3://bucket"}).models == Path("s3:/bucket")


def test_a_models_folder_does_not_come_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    models = tmp_path / "nowhere" / "models"
    assert rejection({"models": str(models)}).startswith(
        f"--models is {str(models)!r}, but should be a folder: make it"
    )


@pytest.mark.parametrize("of_which", ["models", "parent"])
def test_a_models_folder_is_one_that_this_user_may_read(tmp_path: Path, of_which: str) -> None:
    models = tmp_path / "parent" / "models"
    models.mkdir(parents=True)
    (models if of_which == "models" else models.parent).chmod(0o000)
    user = os.geteuid()
    try:
        if not user:
            os.seteuid(65534)  # root may read anything
        text = rejection({"models": str(models)})
    finally:
        os.seteuid(user)
        models.parent.chmod(0o700)
    assert text.startswith(f"--models is {str(models)!r}, but should be a folder that user ")


def test_batches_in_flight_are_not_as_many_threads_as_a_mistyped_number() -> None:
    assert rejection({"batches_in_flight": 100_000}).startswith("--batches-in-flight is 100000, but should be less")
    assert load_settings({"batches_in_flight": 1024}).batches_in_flight == 1024


@pytest.mark.parametrize("text", ["1,2,64", "[1,2,64]", " [1, 2, 64] "])
def test_batch_sizes_are_read_with_and_without_brackets(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_BATCH_SIZES", text)
    assert load_settings({}).batch_sizes == [1, 2, 64]
    assert load_settings({"batch_sizes": [8, 64]}).batch_sizes == [8, 64]


def test_pad_values_are_names_and_values_in_text_and_a_mapping_in_the_file(tmp_path: Path) -> None:
    read = {"tokens": 1, "bert/x": -0.5, "words": "?"}
    assert load_settings({"pad_values": "tokens=1, bert/x=-0.5,words=?"}).pad_values == read
    assert load_settings({"pad_values": '{"tokens": 1, "bert/x": -0.5, "words": "?"}'}).pad_values == read
    file = yaml(tmp_path, "pad_values: {tokens: 1, bert/x: -0.5, words: '?'}\nshape_buckets: [8, 64]\n")
    assert load_settings({}, file).pad_values == read
    assert load_settings({"shape_buckets": "16,256"}, file).shape_buckets == [16, 256]


def test_model_weights_are_names_and_positive_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_MODEL_WEIGHTS", "bert=3, resnet=0.5")
    assert load_settings({}).model_weights == {"bert": 3, "resnet": 0.5}
    assert load_settings({"model_weights": '{"bert": 2}'}).model_weights == {"bert": 2}


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            {"model_weights": "bert"},
            "--model-weights is 'bert', but should be names and weights such as bert=3,resnet=1",
        ),
        ({"model_weights": "bert=0"}, "--model-weights is 0, but should be greater than or equal to 0.001"),
        ({"replicas": -1}, "--replicas is -1, but should be greater than or equal to 0"),
        ({"max_batch_size": 0}, "--max-batch-size is 0, but should be greater than 0"),
        ({"max_batch_delay_ms": "inf"}, "--max-batch-delay-ms is 'inf', but should be a finite number"),
        ({"target_p99_ms": "inf"}, "--target-p99-ms is 'inf', but should be a finite number"),
        (
            {"max_batch_delay_ms": 1e9},
            "--max-batch-delay-ms is 1000000000.0, but should be less than or equal to 10000",
        ),
        ({"max_inline_ms": 1e6}, "--max-inline-ms is 1000000.0, but should be less than or equal to 1000"),
        ({"target_p99_ms": 1e9}, "--target-p99-ms is 1000000000.0, but should be less than or equal to 600000"),
        (
            {"request_timeout_ms": 1e9},
            "--request-timeout-ms is 1000000000.0, but should be less than or equal to 86400000",
        ),
        (
            {"max_queue_size": 1 << 40},
            "--max-queue-size is 1099511627776, but should be less than or equal to 1073741824",
        ),
        ({"batches_in_flight": 8501}, "--batches-in-flight is 8501, but should be less than or equal to 1024"),
        (
            {"model_roots": "models"},
            "--model-roots is 'models', but should be absolute folders such as /models,/data/models",
        ),
        ({"frontends": 8501}, "--frontends is 8501, but should be less than or equal to 256"),
        (
            {"metrics_path": "metrics"},
            "--metrics-path is 'metrics', but should be text that matches ^(/[^/?#][^?#]*)?$",
        ),
        ({"rest_port": "abc"}, "--rest-port is 'abc', but should be a valid integer"),
        ({"rest_port": 70000}, "--rest-port is 70000, but should be less than or equal to 65535"),
        ({"log_level": "loud"}, "--log-level is 'loud', but should be 'debug', 'info', 'warning' or 'error'"),
        ({"runtime": "torch"}, "--runtime is 'torch', but should be one of: tensorflow, litert"),
        ({"batch_sizes": "1;2"}, "--batch-sizes is '1;2', but should be whole numbers such as 1,2,4"),
        (
            {"pad_values": "tokens"},
            "--pad-values is 'tokens', but should be names and values such as tokens=1,bert/mask=0",
        ),
        ({"shape_buckets": "64,8"}, "--shape-buckets is '64,8', but should be ascending numbers such as 64,256"),
        ({"pad_shapes": "yes"}, "--pad-shapes is 'yes', but should be 'auto', 'always' or 'never'"),
        ({"batch_sizes": "0,64"}, "--batch-sizes is 0, but should be greater than 0"),
        (
            {"batch_sizes": "1,32"},
            "--batch-sizes is '1,32', but should be ascending numbers that end with max_batch_size, 64",
        ),
        (
            {"batch_sizes": "2,1,64"},
            "--batch-sizes is '2,1,64', but should be ascending numbers that end with max_batch_size, 64",
        ),
        (
            {"max_batch_size": 10_000},
            "The default of max_queue_size is 8192, but should be at least max_batch_size, 10000, or 0",
        ),
        ({"tls_key": "k"}, "--tls-key is 'k', but should be empty without tls_certificate"),
        (
            {"tls_certificate": "c"},
            "The default of tls_key is '', but should be the file of the key of tls_certificate",
        ),
        (
            {"tls_client_ca": "a"},
            "--tls-client-ca is 'a', but should be empty without tls_certificate, which turns TLS on",
        ),
        (
            {"operator_port": 8500},
            "--operator-port is 8500, but should be another port than rest_port and grpc_port, or 0",
        ),
        (
            {"operator_port": 8600, "rest": False},
            "--operator-port is 8600, but should be 0 where rest is off: it is a port of HTTP",
        ),
        ({"hosts": "x"}, "--hosts is not a setting of Ferry; did you mean host?"),
        (
            {"max_batch_size": 0, "batch_sizes": "1,2", "host": 5},
            "--host is 5, but should be a valid string; --max-batch-size is 0, but should be greater than 0",
        ),
    ],
)
def test_a_wrong_flag_is_named_with_its_value_and_what_is_expected(overrides: dict[str, Any], text: str) -> None:
    assert rejection(overrides) == text


def test_a_wrong_value_is_named_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = yaml(tmp_path, "max_batch_size: many")
    assert rejection(config=file) == f"max_batch_size in {file} is 'many', but should be a valid integer"
    monkeypatch.setenv("FERRY_MAX_BATCH_SIZE", "few")
    assert rejection(config=file) == "FERRY_MAX_BATCH_SIZE is 'few', but should be a valid integer"
    assert rejection({"max_batch_size": -1}, file) == "--max-batch-size is -1, but should be greater than 0"


def test_an_unknown_name_is_rejected_with_the_one_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = yaml(tmp_path, "max_batchsize: 3")
    assert rejection(config=file) == f"max_batchsize in {file} is not a setting of Ferry; did you mean max_batch_size?"
    monkeypatch.setenv("FERRY_MAX_BATCHSIZE", "3")
    assert rejection() == "FERRY_MAX_BATCHSIZE is not a setting of Ferry; did you mean FERRY_MAX_BATCH_SIZE?"
    monkeypatch.delenv("FERRY_MAX_BATCHSIZE")
    monkeypatch.setenv("FERRY_ZZZ", "3")
    assert rejection() == "FERRY_ZZZ is not a setting of Ferry; remove it: docs/settings.md lists them all"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("admin_port", "did you mean operator_port?"),
        ("admin_grpc_port", "did you mean operator_port?"),
        ("forbidden_variants", "did you mean execution_variant?"),
        ("grpc_max_connection_age_s", "did you mean max_connection_age_s?"),
        ("max_headers", "remove it: docs/settings.md lists them all"),
    ],
)
def test_a_setting_that_is_gone_is_rejected_with_what_took_its_place(tmp_path: Path, name: str, meant: str) -> None:
    file = yaml(tmp_path, f"{name}: 3")
    assert rejection(config=file) == f"{name} in {file} is not a setting of Ferry; {meant}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FERRY_SERVICE_HOST", "10.0.0.1"),
        ("FERRY_SERVICE_PORT", "8501"),
        ("FERRY_SERVICE_PORT_REST", "8501"),
        ("FERRY_PORT", "tcp://10.0.0.1:8501"),
        ("FERRY_PORT_8501_TCP", "tcp://10.0.0.1:8501"),
        ("FERRY_PORT_8501_TCP_PROTO", "tcp"),
        ("FERRY_PORT_8501_TCP_PORT", "8501"),
        ("FERRY_PORT_8501_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_the_variables_of_a_kubernetes_service_are_none_of_ours(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert load_settings({}) == Settings()


def test_a_mistaken_port_is_not_taken_for_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_PORT", "9000")
    assert rejection() == "FERRY_PORT is not a setting of Ferry; did you mean FERRY_REST_PORT?"


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_CONFIG", str(tmp_path / "no.yaml"))
    assert rejection() == f"The settings file {tmp_path}/no.yaml does not exist"


@pytest.mark.parametrize("text", ["- 1", "a: b: c", "words", "\x00"])
def test_a_file_that_is_no_mapping_is_named(text: str, tmp_path: Path) -> None:
    file = yaml(tmp_path, text)
    assert rejection(config=file).startswith(f"The settings file {file} is not a YAML mapping: ")


def test_every_setting_is_described_and_can_be_given_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(field.description for field in Settings.model_fields.values())
    defaults = Settings()
    for name in Settings.model_fields:
        value = getattr(defaults, name)
        monkeypatch.setenv(variable(name), ",".join(map(str, value)) if isinstance(value, list) else str(value))
    assert load_settings({}) == defaults


def test_names_follow_from_the_field() -> None:
    assert flag_of("max_batch_size") == "--max-batch-size"
    assert variable("max_batch_size") == "FERRY_MAX_BATCH_SIZE"
