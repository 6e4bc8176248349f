"""Every flag of tensorflow_model_server, and its meaning in Ferry."""

from __future__ import annotations

from dataclasses import dataclass, replace

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.

    Attributes:
        default: TensorFlow Serving's; its type is the type of the flag.
        meaning: for people.
        idle: the flag is accepted and does nothing; `meaning` says why.
        least, most: bounds of a number, included.
    """

    name: str
    default: Value
    meaning: str
    idle: bool = False
    least: float | None = None
    most: float | None = None


_PORT = 65535

_USED = (
    Flag("port", 8500, "gRPC port; 0 chooses a free one.", least=0, most=_PORT),
    Flag("grpc_socket_path", "", "Path of a Unix socket that also serves gRPC."),
    Flag("rest_api_port", 0, "HTTP port; 0 serves no HTTP.", least=0, most=_PORT),
    Flag("rest_api_timeout_in_ms", 30000, "Time that a request may take, over HTTP and over gRPC.", least=1),
    Flag("rest_api_enable_cors_support", False, "Let web pages of any origin send requests."),
    Flag(
        "enable_batching",
        False,
        "Run requests in batches. Ferry does so without the flag, too; "
        "--enable_batching=false runs each request alone, unchanged.",
    ),
    Flag(
        "allow_version_labels_for_unavailable_models", False, "New labels may name versions that are not available yet."
    ),
    Flag("batching_parameters_file", "", "BatchingParameters as text; needs --enable_batching."),
    Flag(
        "enable_per_model_batching_parameters",
        False,
        "batching_params.pbtxt in a version's folder sets the batch sizes of that version.",
    ),
    Flag("model_config_file", "", "ModelServerConfig as text: which models to serve."),
    Flag("model_config_file_poll_wait_seconds", 0, "How often the file is read again; 0 reads it once.", least=0),
    Flag("model_name", "default", "Name of the one model; not used with --model_config_file."),
    Flag("model_base_path", "", "Folder of the one model's versions; not used with --model_config_file."),
    Flag("file_system_poll_wait_seconds", 1, "How often model folders are read; 0 or less reads them once."),
    Flag("tensorflow_session_parallelism", 0, "Sets both of the next two if they are not given.", least=0),
    Flag(
        "tensorflow_intra_op_parallelism",
        0,
        "Threads inside one operation; 0 shares the cores among batches in flight.",
        least=0,
    ),
    Flag("tensorflow_inter_op_parallelism", 0, "Operations at a time; 0 lets TensorFlow choose.", least=0),
    Flag("use_alts_credentials", False, "Not supported: Ferry does not start with it."),
    Flag("ssl_config_file", "", "SSLConfig as text: TLS for gRPC."),
    Flag("grpc_channel_arguments", "", "gRPC's own arguments: key=value,...; integers and strings."),
    Flag("enable_model_warmup", True, "Call a model before it is served, and make it faster afterwards."),
    Flag("version", False, "Print the version and exit."),
    Flag("monitoring_config_file", "", "MonitoringConfig as text: the path of the Prometheus page."),
    Flag("enable_grpc_healthcheck_service", False, "The health service is always on."),
    Flag("prefer_tflite_model", False, "Serve model.tflite where a version has a SavedModel, too."),
    Flag("enable_serialization_as_tensor_content", False, "gRPC outputs as tensor_content instead of typed fields."),
)

_RETRIES = (
    "A load that failed is tried again when the model's files change; if they could not be read, after 1 to 60 s."
)
_INTERPRETERS = "A TFLite model has an interpreter for each batch in flight, and one more."
_XLA = "Ferry measures whether XLA is faster; FERRY_EXECUTION_VARIANT fixes the choice."

_IDLE = (
    Flag("rest_api_num_threads", 0, "HTTP is served by an event loop, not by threads."),
    Flag("grpc_max_threads", 0, "gRPC is served by an event loop, not by threads."),
    Flag("num_load_threads", 0, "Up to four models load side by side, as cores and memory allow, while others serve."),
    Flag("num_unload_threads", 0, "A model is unloaded as soon as its last request is answered."),
    Flag("max_num_load_retries", 5, _RETRIES),
    Flag("load_retry_interval_micros", 60_000_000, _RETRIES),
    Flag("flush_filesystem_caches", True, "The operating system decides how long it caches the files."),
    Flag("tensorflow_session_config_file", "", "Threads have flags of their own; few models need a session."),
    Flag("platform_config_file", "", "There is one platform, tensorflow, configured by flags."),
    Flag("per_process_gpu_memory_fraction", 0.0, "GPU memory is allocated as it is needed."),
    Flag("saved_model_tags", "serve", "The graph tagged serve is served."),
    Flag("num_request_iterations_for_warmup", 1, "Ferry calls a model at each batch size before requests do."),
    Flag("remove_unused_fields_from_bundle_metagraph", True, "Ferry keeps only the parts that serving needs."),
    Flag("num_tflite_pools", 1, _INTERPRETERS),
    Flag("num_tflite_interpreters_per_pool", 1, _INTERPRETERS),
    Flag("enable_signature_method_name_check", False, "Calls are checked by the names of inputs and outputs."),
    Flag("xla_cpu_compilation_enabled", False, _XLA),
    Flag("xla_gpu_compilation_enabled", False, _XLA),
    Flag("enable_profiler", True, "There is no profiler service; the metrics page shows where time goes."),
    Flag("thread_pool_factory_config_file", "", "TensorFlow's own thread pools are used."),
    Flag("mixed_precision", "", "Models run with the types that they were saved with."),
    Flag("skip_initialize_tpu", False, "TPUs are not used."),
)

#: By name.
FLAGS = {flag.name: flag for flag in (*_USED, *(replace(flag, idle=True) for flag in _IDLE))}
