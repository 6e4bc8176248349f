"""The port: health, reflection, TLS, Unix sockets, limits, and what stops a start."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from app.codecs.protobuf.messages import message_class
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.texts import TlsTexts
from tests.support.grpc_live import LIMIT, MODEL, PREDICTION, Live, live, predict_request, rows, spec, with_live
from tests.support.missing import skip_loudly
from tests.support.waiting import HANG_S

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("service", ["", PREDICTION, MODEL, "PredictionService", "ModelService"])
def test_health_is_true_at_any_time(service: str) -> None:
    async def scenario(running: Live) -> None:
        health = health_pb2_grpc.HealthStub(running.channel)
        request = health_pb2.HealthCheckRequest(service=service)
        for ready, status in ((True, SERVING), (False, NOT_SERVING), (True, SERVING)):
            running.ready = ready
            assert (await health.Check(request)).status == status

    with_live(scenario)


def test_a_service_that_is_none_of_ours_has_no_health() -> None:
    async def scenario(running: Live) -> None:
        health = health_pb2_grpc.HealthStub(running.channel)
        call = health.Check(health_pb2.HealthCheckRequest(service="tensorflow.serving.SessionService"))
        assert await call.code() is grpc.StatusCode.NOT_FOUND

    with_live(scenario)


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_bytes_that_are_no_question_for_health_are_their_callers_fault(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(running: Live) -> None:
        call = running.channel.unary_stream(f"/grpc.health.v1.Health/{method}")(b"\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await call.details() == f"The request is not a message that {method} takes"

    with_live(scenario)
    assert caplog.records == []


def test_bytes_that_are_no_question_for_reflection_are_their_callers_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(running: Live) -> None:
        path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        call = running.channel.stream_stream(path)(iter([b"\x3a\x00", b"\xff"]))
        assert len(await call.read()) > 100
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT

    with_live(scenario)
    assert caplog.records == []


def test_a_health_watch_reports_changes() -> None:
    async def scenario(running: Live) -> None:
        watch = health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest(service=PREDICTION))
        assert (await watch.read()).status == SERVING
        running.ready = False
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()

    with_live(scenario)


def test_a_watch_begins_with_what_is_true_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with what was found when the server looked last."""
    monkeypatch.setattr("app.transports.grpc.health._PERIOD_S", HANG_S)

    async def scenario(running: Live) -> None:
        for running.ready, status in ((False, NOT_SERVING), (True, SERVING)):
            watch = health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == status
            watch.cancel()

    with_live(scenario)


async def reflect(running: Live, **question: str) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**question)]))
    return await call.read()


REFLECTION = {f"grpc.reflection.{version}.ServerReflection" for version in ("v1", "v1alpha")}


def test_reflection_tells_of_every_service() -> None:
    async def scenario(running: Live) -> None:
        answer = await reflect(running, list_services="")
        names = {each.name for each in answer.list_services_response.service}
        assert names == {PREDICTION, MODEL, "grpc.health.v1.Health", *REFLECTION}
        for name in names:
            found = await reflect(running, file_containing_symbol=name)
            files = [
                FileDescriptorProto.FromString(each) for each in found.file_descriptor_response.file_descriptor_proto
            ]
            assert {f"{file.package}.{service.name}" for file in files for service in file.service} >= {name}
            imported = {name for file in files for name in file.dependency}
            assert imported <= {file.name for file in files}

    with_live(scenario)


def test_the_same_services_over_a_unix_socket(tmp_path: Path) -> None:
    socket = tmp_path / "grpc.sock"
    options = GrpcOptions("127.0.0.1", 0, LIMIT, unix_socket=str(socket))

    async def scenario(running: Live) -> None:
        assert (await running.call("Predict", predict_request({"x": rows(1)}))).outputs
        assert running.server.port

    with_live(scenario, options=options, address=f"unix:{socket}")


@pytest.mark.parametrize("client_verify", [False, True])
def test_credentials_turn_tls_on(certificate: tuple[bytes, bytes], client_verify: bool) -> None:
    key, chain = certificate
    tls = ServedTls(lambda: TlsTexts(chain, key, chain if client_verify else b""))

    async def main() -> None:
        async with live(options=GrpcOptions("127.0.0.1", 0, LIMIT, tls=tls)) as running:
            target = f"localhost:{running.server.port}"
            known = grpc.ssl_channel_credentials(chain, key, chain)
            async with grpc.aio.secure_channel(target, known) as running.channel:
                assert (await running.call("Predict", predict_request({"x": rows(1)}))).outputs
            unknown = grpc.ssl_channel_credentials(chain)
            async with grpc.aio.secure_channel(target, unknown) as running.channel:
                if client_verify:
                    code, _ = await running.failure("Predict", predict_request({"x": rows(1)}))
                    assert code is grpc.StatusCode.UNAVAILABLE
                else:
                    assert (await running.call("Predict", predict_request({"x": rows(1)}))).outputs

    asyncio.run(main())


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("protocols", [["http/1.1"], []])
def test_who_does_not_choose_http2_by_alpn_is_closed(
    certificate: tuple[bytes, bytes], protocols: list[str], runner: Any
) -> None:
    """RFC 9113, section 3.2."""
    context = ssl.create_default_context(cadata=certificate[1].decode())
    if protocols:
        context.set_alpn_protocols(protocols)

    async def main() -> None:
        options = GrpcOptions("127.0.0.1", 0, LIMIT, tls=ServedTls(lambda: TlsTexts(*reversed(certificate))))
        async with live(options=options) as running:
            reader, writer = await asyncio.open_connection("localhost", running.server.port, ssl=context)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    runner(main())


def status_request() -> Any:
    """Of more than 5 bytes."""
    return message_class("tensorflow.serving.GetModelStatusRequest")(model_spec=spec("m", "a signature"))


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("grpc.max_receive_message_length", "Received message larger than max"),
        ("grpc.max_send_message_length", "Sent message larger than max"),
    ],
)
def test_what_a_message_may_have_at_most_is_an_argument(argument: str, told: str) -> None:
    options = GrpcOptions("127.0.0.1", 0, LIMIT, arguments=[(argument, 5)])

    async def scenario(running: Live) -> None:
        for method, request, service in (
            ("Predict", predict_request({"x": rows(1)}), PREDICTION),
            ("GetModelStatus", status_request(), MODEL),
        ):
            code, text = await running.failure(method, request, service)
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert text.startswith(told)

    with_live(scenario, options=options)


def test_a_port_in_use_stops_the_start() -> None:
    async def scenario(running: Live) -> None:
        address = f"127.0.0.1:{running.server.port}"
        second = GrpcServer(GrpcOptions("127.0.0.1", running.server.port), [], lambda: True)
        with pytest.raises(OSError, match=re.escape(f"gRPC cannot listen on {address}: it is in use")):
            await second.start()
        await second.stop(0)

    with_live(scenario)


def test_a_socket_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        server = GrpcServer(GrpcOptions("127.0.0.1", 0, unix_socket=str(tmp_path / "no" / "s")), [], lambda: True)
        with pytest.raises(OSError, match="gRPC cannot listen on unix:"):
            await server.start()
        await server.stop(0)

    asyncio.run(main())


def test_ipv6_hosts_are_written_in_brackets() -> None:
    async def main() -> None:
        server = GrpcServer(GrpcOptions("::1", 0), [], lambda: True)
        try:
            await server.start()
        except OSError:
            skip_loudly("THE MACHINE HAS NO IPV6 LOOPBACK: A gRPC PORT ON IT WAS NOT TRIED")
        assert server.port
        await server.stop(0)

    asyncio.run(main())
