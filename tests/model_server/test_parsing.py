from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model_server.flags import FLAGS
from app.model_server.parsing import UsageError, parse

# Names and defaults as TensorFlow Serving 2.20 has them.
DEFAULTS = {
    "port": 8500, "grpc_socket_path": "", "rest_api_port": 0, "rest_api_timeout_in_ms": 30000,
    "rest_api_enable_cors_support": False, "enable_batching": False,
    "allow_version_labels_for_unavailable_models": False, "batching_parameters_file": "",
    "enable_per_model_batching_parameters": False, "model_config_file": "", "model_config_file_poll_wait_seconds": 0,
    "model_name": "default", "model_base_path": "", "num_load_threads": 0, "num_unload_threads": 0,
    "max_num_load_retries": 5, "load_retry_interval_micros": 60_000_000, "file_system_poll_wait_seconds": 1,
    "flush_filesystem_caches": True, "tensorflow_session_parallelism": 0, "ssl_config_file": "",
    "platform_config_file": "", "per_process_gpu_memory_fraction": 0, "saved_model_tags": "serve",
    "enable_model_warmup": True, "monitoring_config_file": "", "remove_unused_fields_from_bundle_metagraph": True,
    "enable_signature_method_name_check": False, "enable_profiler": True, "enable_grpc_healthcheck_service": False,
    "enable_serialization_as_tensor_content": False,
}  # fmt: skip
WITHOUT_STATED_DEFAULT = {
    "rest_api_num_threads", "grpc_max_threads", "tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism",
    "tensorflow_session_config_file", "use_alts_credentials", "grpc_channel_arguments",
    "num_request_iterations_for_warmup", "version", "prefer_tflite_model", "num_tflite_pools",
    "num_tflite_interpreters_per_pool", "xla_cpu_compilation_enabled", "xla_gpu_compilation_enabled",
    "thread_pool_factory_config_file", "mixed_precision", "skip_initialize_tpu",
}  # fmt: skip


def rejection(*arguments: str) -> str:
    with pytest.raises(UsageError) as rejected:
        parse(arguments)
    return str(rejected.value)


def test_every_flag_of_tensorflow_serving_is_known_with_its_default() -> None:
    assert {*DEFAULTS, *WITHOUT_STATED_DEFAULT} == FLAGS.keys()
    assert {name: FLAGS[name].default for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_takes_its_default(name: str) -> None:
    default = FLAGS[name].default
    text = str(default).lower() if isinstance(default, bool) else str(default)
    assert parse([f"--{name}={text}"]) == {name: default}
    if not isinstance(default, bool):
        assert parse([f"--{name}", text]) == {name: default}


def test_flags_in_all_their_forms() -> None:
    line = ["--port=1", "--model_name", "m", "--enable_batching", "--model_base_path=", "--enable_model_warmup=false"]
    assert parse(line) == {
        "port": 1,
        "model_name": "m",
        "enable_batching": True,
        "model_base_path": "",
        "enable_model_warmup": False,
    }
    assert parse(["--per_process_gpu_memory_fraction=0.5"]) == {"per_process_gpu_memory_fraction": 0.5}
    assert parse(["--grpc_channel_arguments=a=1,b=2"]) == {"grpc_channel_arguments": "a=1,b=2"}


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("TRUE", True), ("false", False), ("0", 0)])
def test_booleans(text: str, value: bool) -> None:
    assert parse([f"--enable_batching={text}"]) == {"enable_batching": value}


def test_the_last_of_several_counts() -> None:
    assert parse(["--port=1", "--port=2"]) == {"port": 2}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--modle_name=m"], "unknown argument: --modle_name=m; did you mean --model_name?"),
        (["--zzz"], "unknown argument: --zzz"),
        (["model_name=m"], "unknown argument: model_name=m; did you mean --model_name?"),
        (["-port=1"], "unknown argument: -port=1; did you mean --port?"),
        (["--noenable_batching"], "unknown argument: --noenable_batching; did you mean --enable_batching?"),
        (["--enable_batching", "false"], "unknown argument: false"),
        (["--model_name"], "--model_name needs a value"),
        (["--port=x"], "--port is 'x', but should be a whole number"),
        (["--port=1.5"], "--port is '1.5', but should be a whole number"),
        (["--port="], "--port is '', but should be a whole number"),
        (["--port=-1"], "--port is '-1', but should be at least 0"),
        (["--rest_api_port=65536"], "--rest_api_port is '65536', but should be at most 65535"),
        (["--rest_api_timeout_in_ms=0"], "--rest_api_timeout_in_ms is '0', but should be at least 1"),
        (
            ["--per_process_gpu_memory_fraction=all"],
            "--per_process_gpu_memory_fraction is 'all', but should be a number",
        ),
        (["--enable_batching=yes"], "--enable_batching is 'yes', but should be true or false"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], text: str) -> None:
    assert rejection(*arguments) == text


@given(st.lists(st.text() | st.builds("--{}={}".format, st.sampled_from(sorted(FLAGS)), st.text())))
def test_any_line_is_read_or_rejected(arguments: list[str]) -> None:
    with suppress(UsageError):
        assert parse(arguments).keys() <= FLAGS.keys()
