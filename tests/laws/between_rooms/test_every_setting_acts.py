"""Each setting acts at every place that it is for: in one process, and with frontends in the engine and in a frontend.

A place is an attribute of the objects that the entry points compose (composed.py). A setting that is not
passed on leaves its default there. A new setting needs a line in ACTS, or in ELSEWHERE the test of what it does.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from app import runtime
from app.config.settings import Settings
from tests.every_protocol.live import RUNTIME
from tests.laws.between_rooms.composed import ENGINE, FRONTEND, ONE, Places, composed
from tests.support.processes import free_port
from tests.transports.tls.certificates import Authority

#: What executes models, what answers callers, and what both do.
EXECUTES, ANSWERS, BOTH = (ONE, ENGINE), (ONE, FRONTEND), (ONE, ENGINE, FRONTEND)

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Acts:
    """Where a setting acts.

    Attributes:
        value: one that differs from the default; FILES are those of a test's folder.
        kinds: the kinds of processes.
        places: those where no default is left, by a star how many are: values that are not of this setting.
        world: settings of one world are changed at the same time; only those that go together are.
        beside: what the setting needs.
    """

    value: Any
    kinds: Sequence[str]
    places: str
    world: str = "most"
    beside: Mapping[str, Any] = field(default_factory=dict)

    def left(self) -> Iterator[tuple[str, int]]:
        for place in self.places.split():
            name, _, left = place.partition("*")
            yield name, int(left or 0)


FILES = "/of the test/"
TLS = {"tls_certificate": f"{FILES}localhost90.crt", "tls_key": f"{FILES}localhost90.key"}
CLIENTS = {**TLS, "tls_client_ca": f"{FILES}authority.crt"}
OPERATORS = {**CLIENTS, "operator_port": free_port()}

ACTS: Mapping[str, Acts] = {
    # Endpoints.
    "host": Acts("127.0.0.2", ANSWERS, "socket GrpcOptions.host"),
    "rest_port": Acts(free_port(), [ONE], "socket"),
    "grpc_port": Acts(free_port(), ANSWERS, "GrpcOptions.port"),
    "single_port": Acts(True, [ONE], "GrpcOptions.own_port RestApplication._grpc", "single port"),
    "grpc_unix_socket": Acts(f"{FILES}grpc", ANSWERS, "GrpcOptions.unix_socket"),
    "grpc_max_message_bytes": Acts(
        1234567, ANSWERS, "GrpcApplication.max_message_bytes PredictTaskless._max_message_bytes"
    ),
    "grpc_max_concurrent_calls": Acts(77, ANSWERS, "GrpcOptions.max_concurrent_calls Http2Limits.max_streams*1"),
    "tensor_content": Acts(False, ANSWERS, "PredictTaskless._tensor_content"),
    # Access.
    "model_control": Acts("explicit", ANSWERS, "Administration.allowed"),
    "model_roots": Acts(["/srv"], EXECUTES, "ModelRoots._roots"),
    "access_file": Acts(
        f"{FILES}access.json", ANSWERS, "FastPath._access HttpOptions.access GrpcCalls.allowed Guard._access"
    ),
    "audit_log": Acts(f"{FILES}audit", ANSWERS, "Audit._handler"),
    "admin_hosts": Acts(["a.example.org"], ANSWERS, "Administration.hosts"),
    "operator_port": Acts(free_port(), ANSWERS, "HttpApp._operator_port", "operators"),
    "tls_certificate": Acts(TLS["tls_certificate"], ANSWERS, "GrpcOptions.tls HttpPort.handshakes", "TLS", TLS),
    "tls_client_ca": Acts(CLIENTS["tls_client_ca"], BOTH, "TlsTexts.client_ca", "TLS of clients", CLIENTS),
    "operator_port_tls": Acts("off", [ONE], "HttpHandshakes._verify*1", "TLS of operators", OPERATORS),
    "max_connection_age_s": Acts(
        77.0, ANSWERS, "ConnectionLimits.max_connection_age_s GrpcOptions.max_age_s Times.age_s"
    ),
    "cors": Acts(True, ANSWERS, "FastPath.headers"),
    "metrics_path": Acts("/monitoring", EXECUTES, "Subscribers._tensorflow_metrics"),
    # Repository.
    "default_model": Acts("m", EXECUTES, "Catalog.default_model"),
    "poll_interval_s": Acts(7.0, EXECUTES, "ModelRepository._poll_interval_s"),
    "settle_s": Acts(0.01, EXECUTES, "ModelRepository._settle_s Intake._settle_s"),
    "empty_grace_s": Acts(11.0, EXECUTES, "FolderWatch._empty_grace_s"),
    "strict_readiness": Acts(True, EXECUTES, "Readiness._strict"),
    # Batching.
    "batching": Acts(False, EXECUTES, "RequestPlacement._batching BatchSizes.allowed*1", "no batching"),
    "max_batch_size": Acts(16, EXECUTES, "BatchSizes.allowed*5"),
    "batch_sizes": Acts([1, 64], EXECUTES, "BatchSizes.allowed*2", "sizes"),
    "row_independence": Acts({"m": "assume"}, EXECUTES, "RowIndependence._wanted _Known.final"),
    "max_batch_delay_ms": Acts(4.0, EXECUTES, "SelfTuning._max_delay_s"),
    "max_inline_ms": Acts(2.5, EXECUTES, "Executor.max_inline_s BatcherOptions.max_inline_s"),
    "target_p99_ms": Acts(33.0, EXECUTES, "SelfTuning._target_s"),
    "admission": Acts(False, EXECUTES, "Acceptance._admission Executor._admission BatchingState.admission"),
    "max_queue_size": Acts(999, EXECUTES, "Room.max_rows Room._bulk_rows Steps.max_queue_rows"),
    "memory_budget_mb": Acts(50, BOTH, "ClientMemory.limit", "memory"),
    "request_timeout_ms": Acts(1234.0, ANSWERS, "HttpOptions.request_timeout_ms GrpcCalls.timeout_s*1"),
    "batches_in_flight": Acts(2, EXECUTES, "RuntimeOptions.batches_in_flight DeviceSlots.count"),
    "replicas": Acts(3, EXECUTES, "RuntimeOptions.replicas"),
    "tensor_float_32": Acts(False, EXECUTES, "RuntimeOptions.tensor_float_32"),
    "preserve_order": Acts(True, EXECUTES, "Completion.order InOrderCompletion.holds"),
    "model_weights": Acts({"m": 3.0}, EXECUTES, "FairQueueing.weights Room._weights"),
    "fair_callers": Acts("address", BOTH, "HttpOptions.callers GrpcCalls.callers*1 RequestQueue.callers"),
    "strict_shapes": Acts(False, EXECUTES, "RequestPlacement._strict_shapes"),
    "max_row_elements": Acts(12345, EXECUTES, "RequestPlacement._max_row_elements ServedPipelines._max_row_elements"),
    "pad_shapes": Acts("always", EXECUTES, "RequestPlacement._unchecked", "padding"),
    # Execution.
    "intra_op_threads": Acts(3, EXECUTES, "RuntimeOptions.intra_op_threads"),
    "inter_op_threads": Acts(5, EXECUTES, "RuntimeOptions.inter_op_threads"),
    "allowed_operations": Acts(["ReadFile"], EXECUTES, "RuntimeOptions.allowed_operations"),
    "operation_libraries": Acts(["my_operations"], EXECUTES, "RuntimeOptions.operation_libraries"),
    "load_budget_s": Acts(14.0, EXECUTES, "TimeBudget.seconds"),
    "fold_nodes": Acts(1234, EXECUTES, "FoldLimits.nodes"),
    "fold_memory_mb": Acts(33, EXECUTES, "FoldLimits.bytes"),
    "execution_variant": Acts("plain", EXECUTES, "VariantOptions.wanted"),
    "variant_cache": Acts(f"{FILES}cache", EXECUTES, "VariantOptions.cache RowProofs._folder"),
    # Clients.
    "max_body_bytes": Acts(54321, ANSWERS, "ConnectionLimits.max_body_bytes HttpOptions.max_body_bytes"),
    "max_head_bytes": Acts(23456, ANSWERS, "ConnectionLimits.max_head_bytes Http2Limits.max_list_bytes*1"),
    "keep_alive_s": Acts(44.0, ANSWERS, "ConnectionLimits.keep_alive_s Times.idle_s*1"),
    "arrival_timeout_s": Acts(22.0, ANSWERS, "ConnectionLimits.arrival_timeout_s Times.slow_s Times.handshake_s*1"),
    "min_body_bytes_per_s": Acts(333, ANSWERS, "ConnectionLimits.min_body_bytes_per_s Times.min_bytes_per_s"),
    "max_connections": Acts(66, ANSWERS, "ConnectionLimits.max_connections Connections._most"),
    "max_connections_per_address": Acts(5, ANSWERS, "Connections._most_of_address"),
    "allow_shared_memory": Acts(True, [ONE], "OpenInference._regions", "regions"),
    "shared_memory_prefix": Acts("of_tests_", [ONE], "SharedMemory._prefix", "regions"),
    # Processes.
    "drain_timeout_s": Acts(19.0, BOTH, "DrainTime._limit_s"),
    "stuck_after_s": Acts(29.0, BOTH, "DeviceThread._stuck_after_s RemoteEngine._silent_after_s"),
    # Observability.
    "log_level": Acts("error", BOTH, "logged*0", "logs"),
    "log_format": Acts("json", BOTH, "logged*0", "logs"),
    "access_log": Acts(0.5, ANSWERS, "GrpcCalls.access TensorFlowRest.access OpenInferenceRest.access HttpApp._access"),
    "traces": Acts(True, ANSWERS, "GrpcCalls.tracing*1 HttpOptions.tracing"),
    "trace_sample_share": Acts(0.5, ANSWERS, "Tracing._share"),
}

#: Settings whose effect is not in what is composed: the test of it.
ELSEWHERE = {
    "rest": "tests/frontends/test_in_this_process.py test_a_supervised_server_serves_grpc_alone",
    "tls_key": "tests/config/test_settings.py The default of tls_key is",  # it goes with tls_certificate
    "models": "tests/server/test_server.py test_ready_when_models_are_loaded_and_warm",
    "wait_for_models": "tests/server/test_server_models.py wait_for_models=True",
    "shape_buckets": "tests/live/test_mixed_shapes.py shape_buckets",
    "pad_values": "tests/loading/test_loader.py pad_values",
    "mask_inputs": "tests/every_protocol/test_masks.py mask_inputs",
    "per_model_batching": "tests/server/test_server_models.py per_model_batching",
    "runtime": "tests/model/test_runtime.py test_a_runtime_is_made_by_name",
    "warm_up": "tests/loading/test_loader.py warm_up",
    "ready_when": "tests/loading/test_loader.py ready_when",
    "frontends": "tests/frontends/test_in_this_process.py frontends=1",
    "drain_grace_s": "tests/server/test_grace.py drain_grace_s",
}

FRONTENDS = {ONE: 0, ENGINE: 2, FRONTEND: 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that settings name, and a model."""
    made = tmp_path_factory.mktemp("settings")
    Authority(made).issue()
    key = {"name": "k", "sha256": "0" * 64, "models": ["*"], "permissions": ["infer"]}
    (made / "access.json").write_text(json.dumps({"keys": [key]}))
    version = made / "models" / "m" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    return made


@pytest.fixture(scope="module")
def worlds(folder: Path) -> Iterator[Any]:
    """What a kind of process is composed of; `world` None: with the defaults, and what its settings need beside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runtime._REGISTRY, *RUNTIME)
        yield cache(lambda kind, world, changed: composed(kind, _settings(folder, kind, world, changed=changed)))


def _settings(folder: Path, kind: str, world: str, *, changed: bool) -> Settings:
    values: dict[str, Any] = {
        "models": folder / "models", "runtime": RUNTIME[0], "host": "127.0.0.1", "rest_port": 0, "grpc_port": 0,
        "warm_up": False, "settle_s": 0, "poll_interval_s": 0, "drain_grace_s": 0.0, "memory_budget_mb": 100,
        "frontends": FRONTENDS[kind],
    }  # fmt: skip
    for name, acts in ACTS.items():
        if acts.world == world and kind in acts.kinds:
            values |= {each: value for each, value in acts.beside.items() if each != name}
            if changed:
                values |= {**acts.beside, name: acts.value}
    if world == "TLS" and not changed:
        values = {name: value for name, value in values.items() if not name.startswith("tls_")}
    return Settings(**{name: _in(folder, value) for name, value in values.items()})


def _in(folder: Path, value: Any) -> Any:
    return value.replace(FILES, f"{folder}/") if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, acts in ACTS.items() for kind in acts.kinds], ids=str
)
def test_a_setting_arrives_wherever_it_acts(name: str, kind: str, worlds: Any) -> None:
    acts = ACTS[name]
    before: Places = worlds(kind, acts.world, False)
    after: Places = worlds(kind, acts.world, True)
    compared = 0
    for place, left in acts.left():
        default, present = before.get(place, Counter()), after.get(place, Counter())
        if default or present:  # a place may be one of some kinds of processes only
            compared += 1
            assert default != present, f"{name} does not act at {place} of {kind}: {default}"
            kept = default & present
            assert kept.total() == left, f"{name} acts at some of {place} of {kind} only: {kept} stay as by default"
    assert compared, f"no place where {name} acts is found in {kind}"


@pytest.mark.parametrize("name", ACTS)
def test_each_place_where_a_setting_acts_is_there(name: str, worlds: Any) -> None:
    """Else a place that has another name now would not be looked at."""
    acts = ACTS[name]
    there = {place for kind in acts.kinds for changed in (False, True) for place in worlds(kind, acts.world, changed)}
    assert {place for place, _ in acts.left()} <= there


def test_every_setting_has_its_line() -> None:
    assert {*ACTS, *ELSEWHERE} == set(Settings.model_fields)
    assert not ACTS.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_acts_elsewhere_is_tested_there(name: str) -> None:
    path, words = ELSEWHERE[name].split(" ", 1)
    assert re.search(re.escape(words), (ROOT / path).read_text())
