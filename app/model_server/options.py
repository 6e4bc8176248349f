"""From TensorFlow Serving's flags, files and environment to Ferry's own settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from app.config.batching_parameters import read_batching_parameters
from app.config.settings import Settings
from app.core.batch_sizes import MOST_QUEUE_ROWS
from app.core.errors import InvalidRequest
from app.model_server.flags import FLAGS, Value
from app.model_server.text_files import metrics_path
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels
from app.repository.model_server_config import read_model_configs

logger = logging.getLogger(__name__)

#: The defaults of the entry script of TensorFlow Serving's image, if only one of its two variables is set.
_IMAGE_NAME, _IMAGE_FOLDER = "model", "/models"

#: Settings whose default in Ferry differs from TensorFlow Serving's behaviour, and for which there is no flag.
DIFFERENCES: Mapping[str, Any] = {
    "wait_for_models": True,
    "strict_shapes": False,
    "grpc_max_message_bytes": 2**31 - 1,
    "max_body_bytes": 256 * 1024**2,
}


def from_environment(environment: Mapping[str, str]) -> Mapping[str, Value]:
    """The flags that the entry script of TensorFlow Serving's image sets, if one of its variables is set."""
    name, folder = environment.get("MODEL_NAME"), environment.get("MODEL_BASE_PATH")
    if not name and not folder:
        return {}
    name = name or _IMAGE_NAME
    return {"rest_api_port": 8501, "model_name": name, "model_base_path": f"{folder or _IMAGE_FOLDER}/{name}"}


def models_of(given: Mapping[str, Value]) -> WatchedModels:
    """The models to serve.

    Raises:
        InvalidRequest: neither a file nor a folder is given, or the file is wrong.
        OSError: the file cannot be read.
    """
    value = partial(_value, given)
    anywhere = bool(value("allow_version_labels_for_unavailable_models"))
    if file := value("model_config_file"):
        read = partial(read_model_configs, Path(str(file)))
        return WatchedModels(read(at_start=True), read, float(value("model_config_file_poll_wait_seconds")), anywhere)
    if folder := str(value("model_base_path")):
        if "://" in folder:  # as a path it would be a folder below the current one, for which the start waits
            raise InvalidRequest(f"--model_base_path is {folder[:256]!r}; expected a local folder: mount the storage")
        return WatchedModels([ModelConfig(str(value("model_name")), Path(folder).absolute())])
    raise InvalidRequest("give --model_config_file, or --model_base_path with --model_name")


def settings_of(given: Mapping[str, Value]) -> dict[str, Any]:
    """The settings that the flags mean, by name.

    Raises:
        InvalidRequest: a flag or a file is wrong.
        OSError: a file cannot be read.
    """
    if given.get("use_alts_credentials"):
        raise InvalidRequest("--use_alts_credentials is not supported; --ssl_config_file gives TLS")
    value = partial(_value, given)
    both = value("tensorflow_session_parallelism")
    return {
        "rest": value("rest_api_port") != 0,
        "rest_port": value("rest_api_port"),
        "grpc_port": value("port"),
        "grpc_unix_socket": value("grpc_socket_path"),
        "request_timeout_ms": value("rest_api_timeout_in_ms"),
        "tensor_content": value("enable_serialization_as_tensor_content"),
        "cors": value("rest_api_enable_cors_support"),
        "poll_interval_s": max(0, value("file_system_poll_wait_seconds")),
        "intra_op_threads": given.get("tensorflow_intra_op_parallelism", both),
        "inter_op_threads": given.get("tensorflow_inter_op_parallelism", both),
        "warm_up": value("enable_model_warmup"),
        "per_model_batching": value("enable_per_model_batching_parameters"),
        "batching": given.get("enable_batching", True),
        "max_queue_size": 0,  # memory alone limits what waits there, too
        **({"runtime": "litert"} if value("prefer_tflite_model") else {}),
        **_batching(given),
        **_monitoring(given),
    }


def _batching(given: Mapping[str, Value]) -> dict[str, Any]:
    file = given.get("batching_parameters_file")
    if not file:
        return {}
    if not given.get("enable_batching"):
        raise InvalidRequest("--batching_parameters_file is set without setting --enable_batching to true")
    parameters = read_batching_parameters(Path(str(file)))
    if parameters.pads_lengths:
        logger.warning(
            "pad_variable_length_inputs does nothing here: requests of different length share a batch where padding "
            "does not change the model's answers"
        )
    rows = parameters.max_batch_size or Settings().max_batch_size
    queue = None if parameters.max_queue_batches is None else rows * max(1, parameters.max_queue_batches)
    queue = None if queue is None else min(queue, MOST_QUEUE_ROWS)
    found = {
        "max_batch_size": rows,
        "batch_sizes": list(parameters.batch_sizes) or None,
        "max_batch_delay_ms": parameters.max_batch_delay_ms,
        "max_queue_size": queue,
        "batches_in_flight": parameters.batches_in_flight,
    }
    return {name: setting for name, setting in found.items() if setting is not None}


def _monitoring(given: Mapping[str, Value]) -> dict[str, Any]:
    file = given.get("monitoring_config_file")
    return {"metrics_path": metrics_path(Path(str(file)))} if file else {}


def _value(given: Mapping[str, Value], name: str) -> Any:
    return given.get(name, FLAGS[name].default)
