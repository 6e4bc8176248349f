"""TLS with certificates of clients, and the port of operators, in the real processes: all protocols, and what testssl
offers and a stranger sends. Certificates lie as in a volume of a Kubernetes Secret, which is swapped at the end."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import numpy as np
import pytest
from ferry_client import AsyncClient, Client, ConnectionFailed
from typer.testing import CliRunner

from app.cli import app
from app.codecs.protobuf.messages import service_descriptor
from app.server.health_check import is_ready
from tests.support.processes import ARRANGEMENTS, ServerProcess, free_port, serving
from tests.support.savedmodels import make_half_plus_two
from tests.support.waiting import HANG_S, wait_until
from tests.transports.tls.certificates import Authority, Pair

BODY = {"instances": [1.0]}
PATH = "/v1/models/half:predict"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

#: Of TLS 1.2: without forward secrecy, without authenticated encryption, without encryption, without a certificate.
WEAK = (
    "AES128-SHA", "AES256-GCM-SHA384", "DHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES128-CCM8", "ECDHE-ECDSA-NULL-SHA", "AECDH-AES128-SHA",
)  # fmt: skip
STRONG = ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384")

#: A ClientHello of SSL 3, and one of SSL 2, which OpenSSL offers no more.
SSL3 = bytes.fromhex("16 0300 002d 01 000029 0300") + bytes(32) + bytes.fromhex("00 0002 0005 01 00")
SSL2 = bytes.fromhex("802e 01 0002 0015 0000 0010 010080 020080 030080 040080 050080 060040 0700c0") + bytes(16)


class World(NamedTuple):
    """A server, its ports, who signs, and the folder where its certificate lies."""

    server: ServerProcess
    operators: str
    grpc_port: int
    authority: Authority
    folder: Path

    def context(self, pair: Pair | None, **attributes: Any) -> ssl.SSLContext:
        """Of a client with this certificate."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if pair is not None:
            context.load_cert_chain(*pair)
        for name, value in attributes.items():
            setattr(context, name, value)
        return context

    def connect(self, context: ssl.SSLContext, name: str = "localhost", port: int = 0) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port or self.server.port), timeout=HANG_S)
        try:
            return context.wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise

    def metrics(self) -> dict[str, float]:
        with httpx.Client(verify=self.context(None), timeout=HANG_S) as client:
            lines = client.get(f"{self.operators}/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith(("ferry_tls", "ferry_rejected_conn")))
        return {name.removeprefix("ferry_"): float(value) for name, value in pairs}


def swap(folder: Path, name: str, pair: Pair) -> None:
    """As the kubelet does it: a new folder, and one rename of the symbolic link that all files lie behind."""
    (folder / name).mkdir()
    for file, source in zip(("tls.crt", "tls.key"), pair, strict=True):
        (folder / name / file).write_bytes(source.read_bytes())
        with suppress(FileExistsError):
            (folder / file).symlink_to(f"..data/{file}")
    (folder / "..data_tmp").symlink_to(name)
    (folder / "..data_tmp").rename(folder / "..data")


@pytest.fixture(scope="module", params=ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One process with one port for REST and gRPC, and operators without certificates; or frontends with grpc.aio, and
    operators without TLS."""
    frontends = request.param
    path = tmp_path_factory.mktemp("tls")
    authority, folder = Authority(path / "authority"), path / "secret"
    folder.mkdir()
    swap(folder, "first", authority.issue())
    make_half_plus_two(path / "models" / "half" / "1")
    operator_port, grpc_port = free_port(), free_port()
    more = {"frontends": 2} if frontends else {"single_port": True}
    client = ssl.create_default_context(cafile=authority.certificate)
    client.load_cert_chain(*authority.issue("client"))
    settings: dict[str, object] = {
        "tls_certificate": folder / "tls.crt",
        "tls_key": folder / "tls.key",
        "tls_client_ca": authority.certificate,
        "operator_port": operator_port,
        "operator_port_tls": "off" if frontends else "server",
        "grpc_port": grpc_port,
        "model_control": "explicit",
        "log_level": "debug",
        **more,
    }
    with serving(path / "models", path / "log", tls=client, **settings) as server:
        operators = f"{'http' if frontends else 'https'}://localhost:{operator_port}"
        yield World(server, operators, grpc_port if frontends else server.port, authority, folder)
        server.terminate()
        assert server.wait() == 0
    assert "Traceback" not in server.log.read_text()


def client_of(world: World) -> Pair:
    return Pair(*(world.authority.certificate.with_name(f"client90.{kind}") for kind in ("crt", "key")))


def channel_of(world: World, pair: Pair | None) -> grpc.Channel:
    texts = (None, None) if pair is None else (pair.key.read_bytes(), pair.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(world.authority.certificate.read_bytes(), *texts)
    return grpc.secure_channel(f"localhost:{world.grpc_port}", credentials)


def code_of(channel: grpc.Channel, method: str, message: bytes = b"") -> grpc.StatusCode:
    try:
        channel.unary_unary(method)(message, timeout=HANG_S)
    except grpc.RpcError as error:
        return error.code()  # type: ignore[attr-defined] # grpc has no types
    return grpc.StatusCode.OK


def test_the_check_of_a_container_asks_by_tls_where_no_certificate_is_needed(world: World) -> None:
    port = httpx.URL(world.operators).port
    variables = {
        "FERRY_REST_PORT": str(world.server.port),
        "FERRY_TLS_CERTIFICATE": str(world.folder / "tls.crt"),
        "FERRY_OPERATOR_PORT": str(port),
        "FERRY_OPERATOR_PORT_TLS": "off" if world.operators.startswith("http:") else "server",
    }
    assert is_ready(variables)
    with pytest.raises((OSError, HTTPException)):
        is_ready({**variables, "FERRY_OPERATOR_PORT": "0"})  # needs a certificate


# --- protocols ---


@pytest.mark.parametrize("http2", [False, True])
def test_http_is_answered(world: World, http2: bool) -> None:
    with httpx.Client(verify=world.context(client_of(world)), http2=http2, timeout=HANG_S) as client:
        for _ in range(2):
            reply = client.post(f"{world.server.url}{PATH}", json=BODY)
            assert (reply.json(), reply.http_version) == ({"predictions": [2.5]}, f"HTTP/{2 if http2 else 1.1}")


def test_grpc_is_answered(world: World) -> None:
    with channel_of(world, client_of(world)) as channel:
        assert code_of(channel, "/inference.GRPCInferenceService/ServerLive") is grpc.StatusCode.OK
        assert code_of(channel, "/grpc.health.v1.Health/Check") is grpc.StatusCode.OK


def test_the_client_library_and_the_benchmark_speak_it(world: World) -> None:
    context = world.context(client_of(world))
    with Client(world.server.url, tls=context, attempts=1) as client:
        assert client.predict("half", np.float32([1.0]))["y"].tolist() == [2.5]

    async def main() -> bool:
        async with AsyncClient(world.server.url, tls=context, attempts=1) as client:
            return await client.ready("half")

    assert asyncio.run(main())
    with pytest.raises(ConnectionFailed):
        Client(world.server.url, attempts=1).models()
    certificate, key = client_of(world)
    files = ["--ca", str(world.authority.certificate), "--certificate", str(certificate), "--key", str(key)]
    once = ["--trials", "1", "--seconds", "0.1", "--target-p99-ms", "240000"]
    result = CliRunner().invoke(app, ["bench", f"{world.server.url}{PATH}", *files, *once])
    assert "Highest rate with p99 <= 240000 ms: 100 requests/s" in result.stdout, result.output


def test_a_certificate_of_another_name_is_the_clients_to_refuse(world: World) -> None:
    """It gets the only one there is, whatever it asks for by SNI (RFC 6066, section 3)."""
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example"):
        world.connect(world.context(client_of(world)), "other.example")
    with closing(world.connect(world.context(client_of(world), check_hostname=False), "other.example")) as client:
        assert ("DNS", "localhost") in client.getpeercert()["subjectAltName"]  # type: ignore[index,operator] - it has one


# --- clients without a certificate ---


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("who", ["nobody", "a stranger", "expired"])
def test_who_has_no_certificate_of_the_authority_gets_no_reply(
    world: World, who: str, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    pair = {"nobody": lambda: None, "a stranger": Authority(tmp_path).issue, "expired": lambda: expired(world)}[who]()
    for port in {world.server.port, world.grpc_port}:
        context = world.context(pair, minimum_version=version, maximum_version=version)
        if port != world.server.port:
            context.set_alpn_protocols(["h2"])
        reply = b""
        with suppress(ssl.SSLError, ConnectionError), closing(world.connect(context, port=port)) as client:
            client.sendall(GET)  # with TLS 1.3 a client hears of it after its part of the handshake
            reply = client.recv(1)
        assert reply == b""
    with channel_of(world, pair) as channel:
        assert code_of(channel, "/inference.GRPCInferenceService/ServerLive") is grpc.StatusCode.UNAVAILABLE


def expired(world: World) -> Pair:
    return world.authority.issue("expired", -1)


# --- what testssl offers ---


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_are_refused(world: World, version: str) -> None:
    for port in {world.server.port, world.grpc_port}:
        context = world.context(client_of(world))
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            world.connect(context, port=port)


@pytest.mark.parametrize("hello", [SSL3, SSL2], ids=["SSL 3", "SSL 2"])
def test_still_older_ones_are_refused(world: World, hello: bytes) -> None:
    for port in {world.server.port, world.grpc_port}:
        assert not asked(port, hello).startswith(b"\x16")  # no ServerHello


@pytest.mark.parametrize("cipher", [*WEAK, *STRONG])
def test_ciphers_without_forward_secrecy_or_authentication_are_refused(world: World, cipher: str) -> None:
    for port in {world.server.port, world.grpc_port}:
        context = world.context(client_of(world), maximum_version=ssl.TLSVersion.TLSv1_2)
        context.set_ciphers(f"{cipher}:@SECLEVEL=0")
        if cipher in STRONG:
            with closing(world.connect(context, port=port)) as client:
                assert client.compression() is None
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                world.connect(context, port=port)


def test_nothing_is_negotiated_anew(world: World) -> None:
    certificate, key = client_of(world)
    command = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{world.server.port}"]
    command += ["-cert", str(certificate), "-key", str(key), "-CAfile", str(world.authority.certificate)]
    done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=HANG_S, check=False)
    output = (done.stdout + done.stderr).decode()
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output
    assert "Compression: NONE" in output


# --- what is no TLS ---


def asked(port: int, content: bytes) -> bytes:
    """All that comes back until the server ends the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as client, suppress(ConnectionError):
        client.sendall(content)
        while piece := client.recv(4096):
            received += piece
    return received


def test_plain_http_is_told_to_speak_tls(world: World) -> None:
    reply = asked(world.server.port, GET)
    assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert reply.endswith(b"This port speaks TLS: use https, or gRPC with TLS\n")


@pytest.mark.parametrize("content", [b"\x16\x03\x01" + bytes(100), bytes(1000), b"\x80\x01"])
def test_what_is_no_handshake_ends(world: World, content: bytes) -> None:
    """One that stalls: tests/transports/http/connections/test_http_handshakes.py."""
    reply = asked(world.server.port, content)
    assert not reply.startswith((b"\x16", b"HTTP"))


# --- the port of operators ---

EVERYWHERE, OPERATORS, CALLERS = {"callers", "operators"}, {"operators"}, {"callers"}

#: By operation of the OpenAPI document, without what follows a name (half, version, label, region): whose port has it.
ROUTES: Mapping[str, set[str]] = {
    **dict.fromkeys(["predict", "predictStream", "classify", "regress", "infer", "predict_default"], CALLERS),
    **dict.fromkeys(["models", "status", "metadata"], EVERYWHERE),
    **dict.fromkeys(["v2_server", "v2_live", "v2_ready", "v2_model", "v2_model_ready", "v2_config"], EVERYWHERE),
    **dict.fromkeys(["livez", "readyz"], EVERYWHERE),
    **dict.fromkeys(["health", "metrics", "batching", "change_batching", "v2_stats", "v2_all_stats"], OPERATORS),
    **dict.fromkeys(["repository_index", "load", "unload"], OPERATORS),
    **dict.fromkeys(["system_status", "system_register", "system_unregister"], OPERATORS),
    **dict.fromkeys(["cuda_status", "cuda_register", "cuda_unregister"], OPERATORS),
}

#: Methods of gRPC that callers' port does not answer.
HIDDEN = {
    "HandleReloadConfigRequest", "ModelStatistics", "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload",
    "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister", "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
}  # fmt: skip


def test_every_route_is_answered_on_the_ports_of_those_that_it_is_for(world: World) -> None:
    with ExitStack() as stack:
        callers, operators = (
            stack.enter_context(httpx.Client(base_url=url, verify=context, timeout=HANG_S))
            for url, context in (
                (world.server.url, world.context(client_of(world))),
                (world.operators, world.context(None)),
            )
        )
        paths = operators.get("/openapi.json").json()["paths"]
        pages = ["/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect"]
        found = {
            **{path: ported(path, "get", callers, operators) for path in pages},
            **{
                re.sub(r" half$|_(version|label|region)$", "", operation["operationId"]): ported(
                    path, method, callers, operators
                )
                for path, operations in paths.items()
                for method, operation in operations.items()
                if method in {"get", "post", "patch", "put", "delete"}
            },
        }
        for method in ("HEAD", "OPTIONS"):
            statuses = [each.request(method, "/metrics").status_code for each in (callers, operators)]
            assert statuses == [404, 200 if method == "HEAD" else 204]
    assert found == {**ROUTES, **dict.fromkeys(pages, OPERATORS)}


def ported(path: str, method: str, callers: httpx.Client, operators: httpx.Client) -> set[str]:
    """On whose ports it is answered; of the model `none`, so that nothing comes of it."""
    path = re.sub(r"{\w+}", "none", path.replace("{version}", "1"))
    replies = {"callers": callers.request(method, path), "operators": operators.request(method, path)}
    hidden = {name for name, reply in replies.items() if "Not found on this port" in reply.text}
    assert all(replies[name].status_code == 404 for name in hidden)
    return replies.keys() - hidden


#: And those that operators' port does not: inference.
INFERENCE = {"Predict", "Classify", "Regress", "MultiInference", "ModelInfer"}


def test_every_method_of_grpc_is_answered_on_the_ports_of_those_that_it_is_for(world: World) -> None:
    operators = httpx.URL(world.operators)
    if operators.scheme == "https":
        credentials = grpc.ssl_channel_credentials(world.authority.certificate.read_bytes())
        channel = grpc.secure_channel(f"localhost:{operators.port}", credentials)
    else:
        channel = grpc.insecure_channel(f"localhost:{operators.port}")
    no_port_has = {"LogSettings", "TraceSetting"}
    with channel, channel_of(world, client_of(world)) as of_callers:
        assert missing(of_callers) == HIDDEN | no_port_has
        assert missing(channel) == INFERENCE | no_port_has
        assert code_of(channel, "/grpc.health.v1.Health/Check") is grpc.StatusCode.OK


def missing(channel: grpc.Channel) -> set[str]:
    """The methods that are not found there."""
    names = (
        "tensorflow.serving.PredictionService",
        "tensorflow.serving.ModelService",
        "inference.GRPCInferenceService",
    )
    return {
        method.name
        for service in map(service_descriptor, names)
        for method in service.methods
        if not method.client_streaming
        and text_of(channel, f"/{service.full_name}/{method.name}") == "Method not found!"
    }


def text_of(channel: grpc.Channel, method: str) -> str:
    """The text of the call's error; empty without one."""
    try:
        channel.unary_unary(method)(b"", timeout=HANG_S)
    except grpc.RpcError as error:
        return str(error.details())  # type: ignore[attr-defined] # grpc has no types
    return ""


# --- metrics, and new certificates ---


def test_metrics_tell_of_certificates_and_of_handshakes_that_failed(world: World) -> None:
    asked(world.server.port, GET)
    wait_until(lambda: world.metrics()['rejected_connections_total{reason="handshake"}'] > 0)
    shown = world.metrics()
    assert shown["tls_files_usable"] == 1
    assert shown['tls_certificate_expiry_timestamp_seconds{certificate="server"}'] > 0
    assert shown['tls_certificate_expiry_timestamp_seconds{certificate="client_ca"}'] > 0


def serial(world: World) -> str:
    with closing(world.connect(world.context(client_of(world)))) as client:
        return str(client.getpeercert()["serialNumber"])  # type: ignore[index] - of a server there is one


def test_new_connections_get_the_new_certificate_and_old_ones_stay(world: World) -> None:
    first = serial(world)
    with httpx.Client(verify=world.context(client_of(world)), timeout=HANG_S) as kept, ExitStack() as stack:
        assert kept.post(f"{world.server.url}{PATH}", json=BODY).status_code == 200
        channel = stack.enter_context(channel_of(world, client_of(world)))
        assert code_of(channel, "/inference.GRPCInferenceService/ServerLive") is grpc.StatusCode.OK

        swap(world.folder, "second", world.authority.issue(days=30))
        wait_until(lambda: all(serial(world) != first for _ in range(8)))
        assert kept.post(f"{world.server.url}{PATH}", json=BODY).status_code == 200
        assert code_of(channel, "/inference.GRPCInferenceService/ServerLive") is grpc.StatusCode.OK
    wait_until(lambda: world.metrics()['tls_reloads_total{result="loaded"}'] == 1)
    with channel_of(world, client_of(world)) as channel:
        assert code_of(channel, "/inference.GRPCInferenceService/ServerLive") is grpc.StatusCode.OK


def test_a_pair_that_does_not_fit_changes_nothing_but_a_metric(world: World) -> None:
    before = serial(world)
    swap(world.folder, "bad", Pair(world.authority.issue("a").certificate, world.authority.issue("b").key))
    wait_until(lambda: world.metrics()["tls_files_usable"] == 0)
    assert world.metrics()['tls_reloads_total{result="failed"}'] == 1
    assert serial(world) == before
    said = "does not belong to the certificate of tls_certificate"
    wait_until(lambda: said in world.server.log.read_text())
    swap(world.folder, "good", world.authority.issue(days=60))
    wait_until(lambda: world.metrics()["tls_files_usable"] == 1)
    wait_until(lambda: all(serial(world) != before for _ in range(8)))
