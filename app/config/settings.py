"""The settings of Ferry: name (with its unit), type, default and description of each.

This is the only definition. config/sources.py reads the values; config/reference.py and `ferry serve --help` print the
descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.config.rules import (
    AbsoluteFolders,
    AccessFilePath,
    AscendingSizes,
    ModelsFolder,
    PolicyName,
    RuntimeName,
    WritableFile,
    has_opentelemetry,
)
from app.config.values import Links, Names, Rows, Sizes, Values, Weights
from app.core.batch_sizes import (
    MOST_BATCH_ROWS,
    MOST_BATCH_SIZES,
    MOST_BATCHES_IN_FLIGHT,
    MOST_DELAY_MS,
    MOST_INLINE_MS,
    MOST_QUEUE_ROWS,
    MOST_TARGET_MS,
    MOST_TIMEOUT_MS,
)

PREFIX = "FERRY_"

DEFAULT_MAX_INLINE_MS = 1.0


class Settings(BaseSettings):
    """All settings. The constructor takes keyword arguments only; `sources.load_settings` also reads the environment
    and the settings file.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, protected_namespaces=()
    )

    host: str = Field("0.0.0.0", description="Address that HTTP and gRPC listen on. ::, all of IPv6 and IPv4.")  # noqa: S104 - a container
    rest: bool = Field(
        True, description="Serve HTTP. If off, only gRPC is served, and there are no health and metrics pages."
    )
    rest_port: int = Field(
        8501, ge=0, le=65535, description="HTTP port; the default is TensorFlow Serving's. 0 takes a free port."
    )
    grpc_port: int = Field(
        8500, ge=0, le=65535, description="gRPC port; the default is TensorFlow Serving's. 0 takes a free port."
    )
    single_port: bool = Field(
        False,
        description="Serve gRPC on rest_port, too, and open no grpc_port: HTTP/1.1, HTTP/2 and gRPC are told apart by "
        "what comes. gRPC is then served by Ferry's own HTTP/2, whatever grpc_engine says. A connection has the times "
        "of HTTP (keep_alive_s) until its first call of gRPC, and from then on those of gRPC "
        "(grpc_max_connection_age_s), whatever else it carries.",
    )
    h2c_upgrade: bool = Field(
        False,
        description="Let a request without a body turn its connection into HTTP/2 by Upgrade: h2c (RFC 7540, 3.2; RFC "
        "9113 removed it). Behind a proxy that forwards Upgrade, clients would pass by its rules (h2c smuggling). If "
        "off, Upgrade is ignored; HTTP/2 by prior knowledge does not need it.",
    )
    grpc_unix_socket: str = Field(
        "",
        description="Path of a Unix socket on which gRPC is served as well as on the port, by the first of the "
        "frontends if there are any. Empty: none.",
    )
    grpc_max_message_bytes: PositiveInt = Field(
        64 * 1024**2,
        le=2**31 - 1,
        description="Largest gRPC request in bytes. A larger one is rejected with RESOURCE_EXHAUSTED.",
    )
    grpc_max_concurrent_calls: PositiveInt = Field(
        10_000,
        le=2**31 - 1,
        description="Most calls at the same time on one gRPC connection. Further ones are refused with UNAVAILABLE.",
    )
    grpc_max_connection_age_s: NonNegativeFloat = Field(
        300.0,
        le=30 * 86_400,
        description="Seconds after which a gRPC connection is left without an error, a tenth more or less by chance: "
        "its calls are answered, and the client connects anew, perhaps to a new server. 0: never. With "
        "grpc_engine=aio after 2.5 s at most, unless drain_grace_s is 0: the library has no other way to say it ends.",
    )
    grpc_engine: Literal["own", "aio"] = Field(
        "own",
        description="What serves gRPC. own: Ferry's own HTTP/2, many times as fast. aio: the gRPC library, which "
        "also serves where a channel argument is its own.",
    )
    tensor_content: bool = Field(
        True,
        description="Write the outputs of TensorFlow Serving's gRPC as raw bytes, which is fast. If off, as lists of "
        "numbers.",
    )
    model_control: Literal["none", "explicit"] = Field(
        "none",
        description="Administration by callers: load and unload models, HandleReloadConfigRequest, PATCH of batching "
        "options, registering shared memory. none: rejected with 403 or PERMISSION_DENIED. explicit: allowed, but not "
        "to web pages of other sites. Whoever reaches the port may do it: keep strangers from it.",
    )
    model_roots: AbsoluteFolders = Field(
        default_factory=list,
        description="Absolute folders below which a HandleReloadConfigRequest may name base paths, such as "
        "/models,/data/models. Empty: those that hold the base paths of the operator's own flags and file.",
    )
    admin_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="A second HTTP port, and the only one where administration is answered, so that a firewall can "
        "tell it apart; gRPC then answers none but on admin_grpc_port. 0: administration is answered on rest_port.",
    )
    admin_grpc_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="A second gRPC port, and the only one where administration is answered by gRPC, such as "
        "HandleReloadConfigRequest. 0: it is answered on grpc_port, or with admin_port by HTTP alone.",
    )
    access_file: AccessFilePath = Field(
        "",
        description="A YAML or JSON file of API keys and token issuers (docs/access.md). With one, nothing but whether "
        "the server lives and is ready is answered without a credential; the file is read anew when it changes. "
        "Empty: everybody may do what the other settings allow.",
    )
    audit_log: WritableFile = Field(
        "",
        description="A file that the lines of the audit log are also written to, as JSON: administration, denied "
        "requests, credentials read anew. Empty: they are in the log alone.",
    )
    admin_hosts: Names[str] = Field(
        default_factory=list,
        description="Host names whose web pages may administer over plain HTTP, such as ferry.example.org. Pages of "
        "addresses, of names without a dot and of https may; clients that are no browsers do not need it.",
    )
    operator_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="A further HTTP port, for operators: the metrics page, /health, the batching page, statistics, "
        "loading, unloading and tuning, shared memory and /docs are answered there only, and inference is not. Other "
        "ports answer 404 for them, gRPC's UNIMPLEMENTED but for admin_grpc_port; /livez, /readyz, states and "
        "metadata of models are on all ports. 0: everything is on rest_port.",
    )
    tls_certificate: str = Field(
        "",
        description="File of the server's certificate in PEM, those between it and its authority behind it: turns TLS "
        "1.2 and 1.3 on for all ports, of HTTP and gRPC. Changed files are used by new connections within seconds. "
        "Empty: no TLS.",
    )
    tls_key: str = Field(
        "",
        validate_default=True,
        description="File of the private key of tls_certificate in PEM, without a passphrase.",
    )
    tls_client_ca: str = Field(
        "",
        description="File of the authorities of clients in PEM (mutual TLS): a client without a certificate of one of "
        "them gets no connection. Empty: clients need none.",
    )
    operator_port_tls: Literal["same", "server", "off"] = Field(
        "same",
        description="TLS on operator_port. same: as on rest_port. server: clients need no certificate there; "
        "Kubernetes' probes cannot have one. off: no TLS.",
    )
    cors: bool = Field(False, description="Let web pages of any origin send requests (CORS).")
    metrics_path: str = Field(
        "",
        pattern="^(/[^/?#][^?#]*)?$",
        description="A second path for the metrics page, such as /monitoring/prometheus/metrics. If set, the page also "
        "has the metrics that TensorFlow Serving has, by its names. Empty: none.",
    )

    models: ModelsFolder = Field(Path("models"), description="Folder of models: <name>/<version>/saved_model.pb.")
    default_model: str = Field(
        "", description="Model that POST /predict calls. Not needed if only one model is served."
    )
    poll_interval_s: NonNegativeFloat = Field(
        1.0, description="Seconds between two checks of the models folder. 0: the folder is read once, at start."
    )
    settle_s: NonNegativeFloat = Field(
        1.0,
        description="Seconds for which the files of a version must not have changed before it is loaded, since it may "
        "still be copied. Files older than a minute count as unchanged at once. 0: as soon as it looks complete.",
    )
    storage_timeout_s: NonNegativeFloat = Field(
        20.0,
        description="Seconds without a sign of life after which storage counts as hung: what lies there is tried "
        "again later, all else goes on. 0: no limit; then files are read by the server itself.",
    )
    empty_grace_s: NonNegativeFloat = Field(
        60.0,
        description="Seconds for which an empty models folder, or an empty folder of a model, unloads nothing: a mount "
        "that went away leaves one. To unload at once, delete the model's folder, or ask by the API.",
    )
    strict_readiness: bool = Field(
        False,
        description="Be ready only while every model that was found at start can be called. If off, Ferry is ready "
        "when each of them has been tried and at least one can be called.",
    )
    wait_for_models: bool = Field(
        False,
        description="Accept requests only after every model has loaded, and exit if one cannot be loaded. If off, each "
        "model is served as soon as it has loaded.",
    )

    batching: bool = Field(
        True, description="Run requests in batches. If off, each request is a call of its own, without padding."
    )
    max_batch_size: PositiveInt = Field(64, le=MOST_BATCH_ROWS, description="Most rows in one call of a model.")
    batch_sizes: Sizes = Field(
        default_factory=list,
        max_length=MOST_BATCH_SIZES,
        description="Row counts that batches are padded to, ascending; the last must equal max_batch_size. "
        "Empty: the powers of two up to max_batch_size.",
    )
    row_independence: Rows = Field(
        default_factory=dict,
        description="Whether rows of several requests may share a call, by <model> or <model>/<signature>, such as "
        "bert=assume,gan/train=deny. probe: if calls at load show that no row sees another one, and the graph writes "
        "no state. assume: always. deny: never; each request runs alone and unpadded. Others: probe.",
    )
    pad_shapes: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Pad requests of different inner shapes so that they can share a batch. auto: only if calls "
        "in the background show that padding does not change the answers. always: also if it changes them. never: "
        "only requests of equal shapes share a batch.",
    )
    shape_buckets: AscendingSizes = Field(
        default_factory=list,
        max_length=MOST_BATCH_SIZES,
        description="Upper bounds of the buckets into which sizes of a free inner dimension are grouped, ascending, "
        "such as 64,256; requests of one bucket share a batch. Empty: 8, 10, 12, 14, 16, 20, 24, 28, 32 and so on.",
    )
    pad_values: Values = Field(
        default_factory=dict,
        description="Value that an input is padded with, by <input> or <model>/<input>, such as tokens=1,bert/mask=0. "
        "Other inputs are padded with 0 or the empty string. A model with an input that cannot hold its value is not "
        "served.",
    )
    mask_inputs: Links = Field(
        default_factory=dict,
        description="Masks and lengths that requests may leave out, by <input> or <model>/<input>, and the input that "
        "each describes, such as bert/mask=tokens. Ferry computes them from the size of that input before padding.",
    )
    max_batch_delay_ms: NonNegativeFloat = Field(
        0.0,
        le=MOST_DELAY_MS,
        allow_inf_nan=False,
        description="Milliseconds that an idle device waits for more requests before it starts a batch that is not "
        "full. With 0 it starts at once; batches fill while the device is busy.",
    )
    max_inline_ms: NonNegativeFloat = Field(
        DEFAULT_MAX_INLINE_MS,
        le=MOST_INLINE_MS,
        allow_inf_nan=False,
        description="Calls that are known to take less than this many milliseconds, by their shape and batch size, are "
        "made on the event loop, because handing them to a thread costs more. 0: always on a thread.",
    )
    target_p99_ms: NonNegativeFloat = Field(
        0.0,
        le=MOST_TARGET_MS,
        allow_inf_nan=False,
        description="Batches are kept so small that a call, plus the wait for the call before it, takes at most this "
        "many milliseconds. Used by the policy self_tuning only. 0: no target.",
    )
    admission: bool = Field(
        True,
        description="Reject a request at once, with the time after which to retry, if it is expected to miss its "
        "deadline. If off, it waits and expires.",
    )
    max_queue_size: NonNegativeInt = Field(
        8192,
        le=MOST_QUEUE_ROWS,
        validate_default=True,
        description="Most rows that may wait in the queue. Requests beyond it are rejected with 503, but a larger one "
        "is computed in parts if it finds the queue empty. If several models are served, half of it is kept for them, "
        "by weight. 0: as many as memory_budget_mb has room for.",
    )
    memory_budget_mb: NonNegativeInt = Field(
        0,
        le=2**30,  # chosen: a number of bytes given by mistake
        description="Megabytes for what clients send and have not read: half of it for the tensors that wait in the "
        "queue, half for bodies of requests that are not answered and for replies that are not read, shared among "
        "frontends. Beyond it, requests are rejected with 503, long HTTP bodies unread. 0: a quarter of the memory "
        "that the machine or its container has left at the start.",
    )
    request_timeout_ms: PositiveFloat = Field(
        30_000.0,
        le=MOST_TIMEOUT_MS,
        allow_inf_nan=False,
        description="Milliseconds from the arrival of a request to its answer; after that it expires.",
    )
    batches_in_flight: NonNegativeInt = Field(
        0,
        le=MOST_BATCHES_IN_FLIGHT,
        description="Batches that one device computes at the same time. 0: 2 on a GPU; on a CPU one for every 4 "
        "cores, but 2 if there are at least 2 cores.",
    )
    replicas: NonNegativeInt = Field(
        1,
        description="Number of GPUs that hold a replica of each model; each computes batches of its own. 0: all GPUs.",
    )
    tensor_float_32: bool = Field(
        True,
        description="Let GPUs compute products of float32 in TF32, as TensorFlow does by itself: faster for large "
        "models, but factors are rounded to 11 binary digits, so that the number of rows in a call changes an answer "
        "in its third or fourth digit. If off, float32 is what it says.",
    )
    preserve_order: bool = Field(
        False,
        description="Answer requests that may share a batch in order of arrival, even if several batches are in "
        "flight: a batch that is done early waits for the earlier ones.",
    )
    model_weights: Weights = Field(
        default_factory=dict,
        description="Weights by which busy models share the devices' time, and by which room in the queue is kept for "
        "them, such as bert=3,resnet=1; a model that is not listed has weight 1. Empty: equal room, and time is not "
        "shared; the earliest deadline goes first, whatever the model.",
    )
    fair_callers: str = Field(
        "",
        pattern=r"^(|key|address|header:[A-Za-z0-9!#$%&'*+.^_`|~-]+)$",
        description="How callers are told apart, so that one that sends much does not keep others waiting: key, by the "
        "name of their key or token (access_file), whose weights then count; address; or header:NAME, such as "
        "header:X-Team, a header or, in gRPC, a metadata key. Where a request has none, its address counts; who has "
        "proven a name, by a key or a token, is told by that in any case. Callers that wait get equal time of the "
        "devices, or by their weights, whatever models and shapes they send, and one fills at most half of the queue. "
        "Empty: order of arrival alone.",
    )
    batching_policy: PolicyName = Field(
        "self_tuning",
        description="How batches are formed. self_tuning chooses batch sizes by measured costs; work_conserving takes "
        "all rows that wait. Names are registered in batching/policy.py.",
    )

    per_model_batching: bool = Field(
        False, description="Read the batch sizes of a version from batching_params.pbtxt in the version's folder."
    )
    strict_shapes: bool = Field(
        True,
        description="Reject tensors whose shape does not fit the signature. If off, such a request runs in a call of "
        "its own, and the model decides; one with another number of dimensions is rejected where operations on images "
        "would end the process.",
    )
    max_row_elements: NonNegativeInt = Field(
        2**26,  # chosen: as many as max_body_bytes has bytes
        description="Most elements in one row of an input whose inner shape the signature leaves open, such as tokens "
        "or pixels: what a call takes in memory and time may grow with their square. A larger row is rejected with "
        "413. 0: no limit.",
    )

    runtime: RuntimeName = Field(
        "tensorflow", description="Runtime that executes models. Names are registered in app/runtime.py."
    )
    intra_op_threads: NonNegativeInt = Field(
        0, description="Threads inside one operation. 0: the cores are shared among the batches in flight."
    )
    inter_op_threads: NonNegativeInt = Field(
        0, description="Operations that run at the same time. 0: TensorFlow chooses."
    )
    allowed_operations: Names[str] = Field(
        default_factory=list,
        description="TensorFlow operations that models may use although they read or write files, open connections or "
        "call Python, such as ReadFile,MatchingFiles. A model that would run another one is not loaded. Reading the "
        "model's own assets and variables is always allowed.",
    )
    warm_up: bool = Field(
        True,
        description="Call a model before it counts as ready, and make it faster afterwards. If off, it is only tried "
        "whether rows may share calls (row_independence): the first calls are slow, and nothing is measured.",
    )
    ready_when: Literal["warm", "tuned"] = Field(
        "warm",
        description="When a version counts as ready. warm: as soon as it answers small batches; larger batches, faster "
        "execution variants and shared calls of different shapes follow in the background, while no requests are "
        "computed. tuned: when all of that is done.",
    )
    load_budget_s: NonNegativeFloat = Field(
        30.0,
        description="Most seconds of work to warm up a version and make it faster, after it was read; no call of the "
        "model is expected to take longer. What does not fit is done later, when no other version waits, in three "
        "rounds of 2, 4 and 8 times as long; what does not fit into the last one is left out. The first calls and the "
        "first probe of rows come in any case: they take 6 s at most for nearly all models. Waiting for a moment "
        "without requests does not count. 0: nothing is done later.",
    )
    load_memory_mb: NonNegativeInt = Field(
        0,
        le=2**30,
        description="Most megabytes that one step of warming up a version and making it faster may take beside the "
        "model itself, where the device is a CPU. Batch sizes whose calls would take more than half of it are not "
        "used: what they take is estimated from smaller ones and, where that is much, measured in a child process, "
        "which holds the model once more. 0: a quarter of the memory that the machine or its container has left.",
    )
    fold_nodes: PositiveInt = Field(
        32_768,
        description="Most nodes that the trees of one request to a pipeline may have, at each step with fold. Where a "
        "node may have more than two children, as many fewer: half as many with four.",
    )
    fold_memory_mb: PositiveInt = Field(
        512,
        le=2**20,
        description="Most megabytes that the states of nodes take, at each step with fold of a pipeline. Requests that "
        "find no room are rejected as by a full queue.",
    )
    execution_variant: Literal["auto", "plain", "frozen", "inline", "xla"] = Field(
        "auto",
        description="How models are executed. plain: as saved. frozen: variables become constants. inline: frozen, in "
        "the thread that calls. xla: compiled by XLA. auto: the fastest, measured in the background.",
    )
    forbidden_variants: Names[Literal["frozen", "inline", "xla"]] = Field(
        default_factory=list, description="Variants that auto does not try, such as frozen,xla."
    )
    variant_cache: str = Field(
        "", description="Folder where auto stores what it found. Empty: the folder ferry in the user's cache folder."
    )
    frozen_limit_mb: NonNegativeInt = Field(
        64,
        description="Models whose variables are larger than this many megabytes are not frozen: constants take 7 "
        "times their size in memory, and 17 times while they are made.",
    )

    max_body_bytes: PositiveInt = Field(
        64 * 1024**2,
        description="Largest HTTP request body in bytes, after decompression. A larger one is rejected with 413.",
    )
    max_inflation_ratio: int = Field(
        200,
        ge=10,
        le=1032,  # deflate's own limit
        description="How many times its size a compressed HTTP body may be inflated to; the first MiB is free. A body "
        "that grows more is rejected with 413. 1032: as far as deflate can.",
    )
    max_request_line_bytes: int = Field(
        8 * 1024,
        ge=256,
        le=1024**2,
        description="Longest request line of HTTP in bytes. A longer one is rejected with 414.",
    )
    max_head_bytes: int = Field(
        32 * 1024,
        ge=1024,
        le=1024**2,
        description="Longest head of an HTTP request, request line and headers, in bytes. A longer one is rejected "
        "with 431.",
    )
    max_headers: int = Field(
        128, ge=16, le=10_000, description="Most headers of an HTTP request. One with more is rejected with 431."
    )
    keep_alive_s: float = Field(
        75.0, gt=0, le=3600, description="Seconds without a byte after which an idle HTTP connection is closed."
    )
    arrival_timeout_s: float = Field(
        60.0,
        ge=1,
        le=3600,
        description="Seconds for the head of an HTTP request to arrive, or for its body to go on. A later one is "
        "rejected with 408.",
    )
    min_body_bytes_per_s: int = Field(
        16 * 1024,
        ge=1,
        le=1024**3,
        description="Least rate at which the body of an HTTP request has to arrive after the first "
        "arrival_timeout_s, in bytes a second. A slower one is rejected with 408. Not for streams whose response "
        "has begun. A client that takes a long reply more slowly is cut, too.",
    )
    max_connections: NonNegativeInt = Field(
        0,
        le=1024**2,
        description="Most HTTP connections of one process at the same time. A further one takes the place of those "
        "that are idle for longest; if none is, it is rejected with 503. 0: half of the file descriptors that the "
        "process may open, at most 10,000, or 4,000 with TLS; more than that half is never taken.",
    )
    max_connections_per_address: NonNegativeInt = Field(
        0,
        le=1024**2,
        description="Most HTTP connections of one client address at the same time in one process; further ones are "
        "rejected with 503. 0: no limit, as a proxy in front of Ferry needs it.",
    )
    allow_shared_memory: bool = Field(
        False,
        description="Let clients on this machine pass tensors through system shared memory (Open Inference Protocol). "
        "They register it, which needs model_control=explicit. It must belong to their own user, and have the prefix. "
        "Not with frontends, where a region would be known to one process only.",
    )
    shared_memory_prefix: str = Field(
        "ferry_",
        pattern="^[^/]{0,200}$",
        description="What names of shared memory that clients register begin with, such as ferry_image: the server "
        "opens no other objects. Empty: any name.",
    )
    frontends: NonNegativeInt = Field(
        0,
        le=256,  # chosen: far more than are of use; a port number given by mistake would start as many processes
        description="Number of processes that serve HTTP and gRPC in front of the one that executes models. 0: one "
        "process does both. Useful if one core cannot read and write requests as fast as the models compute.",
    )
    drain_grace_s: NonNegativeFloat = Field(
        3.0,
        le=3600,
        description="Seconds for which the server still serves after SIGTERM, while load balancers learn that it is "
        "not ready. Replies of HTTP close their connections, and gRPC sends GOAWAY. Then new requests are rejected. "
        "Ctrl-C does not wait.",
    )
    drain_timeout_s: PositiveFloat = Field(
        30.0, description="Seconds that accepted requests get to finish after SIGTERM."
    )
    stuck_after_s: PositiveFloat = Field(
        60.0, description="/livez reports a failure if a batch runs for longer than this many seconds."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe level that is logged. TensorFlow's own: TF_CPP_MIN_LOG_LEVEL, 3 if not set."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of the lines of the log. json: one object a line, for programs that read them."
    )
    access_log: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the requests of HTTP and gRPC that the log gets a line of, drawn at random: 0.01 is one "
        "in a hundred, 1 all of them. 0: none.",
    )
    traces: bool = Field(
        False,
        description="Send OpenTelemetry traces by OTLP over HTTP; needs ferry-serving[tracing]. Where to, and the "
        "rest, say the SDK's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, OTEL_BSP_*, ...).",
    )
    trace_sample_share: float = Field(
        0.001,
        ge=0,
        le=1,
        description="Share of the requests without a traceparent that are traced, by chance. Those with one are traced "
        "if its sampled flag is set.",
    )
    trace_most_per_s: PositiveFloat = Field(
        100.0,
        description="Requests a second, of each process, that trace_sample_share takes at most: one takes some 0.08 ms "
        "of processor time.",
    )

    @property
    def http_ports(self) -> dict[int, str]:
        """All ports of HTTP, and what the first lines of the log say of each."""
        tls = ", TLS" if self.tls_certificate else ""
        ports = {self.rest_port: f"{tls}, gRPC too" if self.single_port else tls}
        if self.admin_port:
            ports[self.admin_port] = f"{tls}, for administration, too"
        if self.operator_port:
            ports[self.operator_port] = f"{'' if self.operator_port_tls == 'off' else tls}, for operators"
        return ports

    @field_validator("single_port")
    @classmethod
    def _single_port_is_one_of_rest(cls, single: bool, others: ValidationInfo) -> bool:
        if single and not others.data.get("rest", True):
            raise ValueError("false where rest is off: the port is REST's")
        return single

    @property
    def grpc_ports(self) -> dict[int, str]:
        """All ports of gRPC, as `http_ports`."""
        ports = [self.grpc_port, self.admin_grpc_port] if self.admin_grpc_port else [self.grpc_port]
        return dict.fromkeys(ports, ", TLS" if self.tls_certificate else "")

    @field_validator("traces")
    @classmethod
    def _traces_have_their_packages(cls, traces: bool) -> bool:
        if traces and not has_opentelemetry():
            raise ValueError('false, or OpenTelemetry installed: pip install "ferry-serving[tracing]"')
        return traces

    @field_validator("admin_port")
    @classmethod
    def _admin_port_is_another(cls, port: int, others: ValidationInfo) -> int:
        if port and port == others.data.get("rest_port"):
            raise ValueError("another port than rest_port, or 0")
        if port and not others.data.get("rest", True):
            raise ValueError("0 where rest is off: administration has a port of HTTP")
        return port

    @field_validator("admin_grpc_port")
    @classmethod
    def _admin_grpc_port_is_another(cls, port: int, others: ValidationInfo) -> int:
        if port and port in {others.data.get(name) for name in ("grpc_port", "rest_port", "admin_port")}:
            raise ValueError("another port than grpc_port, rest_port and admin_port, or 0")
        return port

    @field_validator("operator_port")
    @classmethod
    def _operator_port_is_another(cls, port: int, others: ValidationInfo) -> int:
        if port and port in {others.data.get(name) for name in ("grpc_port", "rest_port", "admin_grpc_port")}:
            raise ValueError("another port than rest_port, grpc_port and admin_grpc_port, or 0")
        if port and others.data.get("admin_port"):
            raise ValueError("0 with admin_port: operator_port is the one where administration is answered, too")
        if port and not others.data.get("rest", True):
            raise ValueError("0 where rest is off: it is a port of HTTP")
        return port

    @field_validator("tls_key")
    @classmethod
    def _key_and_certificate_go_together(cls, key: str, others: ValidationInfo) -> str:
        if bool(key) != bool(others.data.get("tls_certificate")):
            raise ValueError("empty without tls_certificate" if key else "the file of the key of tls_certificate")
        return key

    @field_validator("tls_client_ca")
    @classmethod
    def _clients_are_verified_with_tls(cls, authorities: str, others: ValidationInfo) -> str:
        if authorities and not others.data.get("tls_certificate"):
            raise ValueError("empty without tls_certificate, which turns TLS on")
        return authorities

    @field_validator("batch_sizes")
    @classmethod
    def _sizes_ascend(cls, sizes: list[int], others: ValidationInfo) -> list[int]:
        largest = others.data.get("max_batch_size")
        if sizes and (sorted(set(sizes)) != sizes or (largest is not None and sizes[-1] != largest)):
            raise ValueError(f"ascending numbers that end with max_batch_size, {largest}")
        return sizes

    @field_validator("max_queue_size")
    @classmethod
    def _queue_holds_a_batch(cls, size: int, others: ValidationInfo) -> int:
        if size and size < others.data.get("max_batch_size", 0):
            raise ValueError(f"at least max_batch_size, {others.data['max_batch_size']}, or 0")
        return size

    @field_validator("frontends")
    @classmethod
    def _frontends_have_work(cls, frontends: int, others: ValidationInfo) -> int:
        if frontends and others.data.get("single_port"):
            raise ValueError("0 with single_port: frontends have a port of gRPC")
        if frontends and others.data.get("allow_shared_memory"):
            raise ValueError(
                "0 with allow_shared_memory: a region is known to one process only. Clients send tensors in messages "
                "instead: binary data over REST, raw_input_contents over gRPC"
            )
        return frontends

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the base class's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)
