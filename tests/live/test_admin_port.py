"""Administration on a port of its own, in the real processes."""

from __future__ import annotations

from pathlib import Path

import grpc
import httpx

from app.codecs.protobuf.messages import message_class
from tests.every_protocol.suite import in_every_arrangement
from tests.support.processes import free_port, serving
from tests.support.savedmodels import make_half_plus_two
from tests.support.waiting import HANG_S

UNLOAD = "/inference.GRPCInferenceService/RepositoryModelUnload"
PAGE = "/v1/models/half/batching"


@in_every_arrangement
def test_the_admin_port_alone_administers_and_both_ports_serve(tmp_path: Path, frontends: int) -> None:
    make_half_plus_two(tmp_path / "models" / "half" / "1")
    port, public, private = free_port(), free_port(), free_port()
    settings = {"model_control": "explicit", "admin_port": port, "frontends": frontends}
    settings |= {"grpc_port": public, "admin_grpc_port": private}
    with serving(tmp_path / "models", tmp_path / "log", **settings) as server:
        assert unload(public) is grpc.StatusCode.PERMISSION_DENIED
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=HANG_S) as admin:
            for client, status in ((server.client, 403), (admin, 200)):
                reply = client.post("/v1/models/half:predict", json={"instances": [1.0]})
                assert reply.json() == {"predictions": [2.5]}
                assert client.patch(PAGE, json={"max_batch_size": 2}).status_code == status
                assert client.post("/v2/repository/models/half/unload").status_code == status
                assert client.post("/v2/repository/models/half/load").status_code == status
        assert unload(private) is grpc.StatusCode.OK
        assert server.client.get("/v1/models/half").json()["model_version_status"][0]["state"] != "AVAILABLE"
        server.terminate()
        assert server.wait() == 0


def unload(port: int) -> grpc.StatusCode:
    """Asks for it over gRPC."""
    message = message_class("inference.RepositoryModelUnloadRequest")(model_name="half")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(UNLOAD)(message.SerializeToString(), timeout=HANG_S)
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined] # grpc has no types
    return grpc.StatusCode.OK
