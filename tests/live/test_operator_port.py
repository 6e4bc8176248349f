"""Administration over HTTP and gRPC on the port of operators, in the real processes."""

from __future__ import annotations

from pathlib import Path

import grpc
import httpx

from app.codecs.protobuf.messages import message_class
from tests.every_protocol.suite import in_every_arrangement
from tests.support.processes import free_port, serving
from tests.support.savedmodels import make_half_plus_two
from tests.support.waiting import HANG_S

SERVICE = "/inference.GRPCInferenceService"
PAGE = "/v1/models/half/batching"


@in_every_arrangement
def test_the_port_of_operators_alone_administers_and_only_the_others_infer(tmp_path: Path, frontends: int) -> None:
    make_half_plus_two(tmp_path / "models" / "half" / "1")
    port, callers = free_port(), free_port()
    settings = {"model_control": "explicit", "operator_port": port, "grpc_port": callers, "frontends": frontends}
    with serving(tmp_path / "models", tmp_path / "log", **settings) as server:
        assert code_of(callers, "RepositoryModelUnload") is grpc.StatusCode.UNIMPLEMENTED
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANG_S) as operators:
            for client, inference, administration in ((server.client, 200, 404), (operators, 404, 200)):
                reply = client.post("/v1/models/half:predict", json={"instances": [1.0]})
                assert reply.status_code == inference
                assert client.patch(PAGE, json={"max_batch_size": 2}).status_code == administration
                assert client.post("/v2/repository/models/half/unload").status_code == administration
                assert client.post("/v2/repository/models/half/load").status_code == administration
        assert code_of(port, "ModelInfer") is grpc.StatusCode.UNIMPLEMENTED
        assert code_of(port, "RepositoryModelUnload") is grpc.StatusCode.OK
        assert server.client.get("/v1/models/half").json()["model_version_status"][0]["state"] != "AVAILABLE"
        server.terminate()
        assert server.wait() == 0


def code_of(port: int, method: str) -> grpc.StatusCode:
    """Of a gRPC call that names the model."""
    message = message_class(f"inference.{method}Request")(model_name="half")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(f"{SERVICE}/{method}")(message.SerializeToString(), timeout=HANG_S)
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined] # grpc has no types
    return grpc.StatusCode.OK
