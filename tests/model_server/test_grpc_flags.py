import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from app.core.errors import InvalidRequest
from app.model_server.grpc_flags import channel_arguments, grpc_options_of
from app.transports.grpc.options import GrpcOptions
from app.transports.tls.texts import TlsError

OPTIONS = GrpcOptions("127.0.0.1", 7, 1000, "/socket")


def test_without_flags_nothing_is_added() -> None:
    assert grpc_options_of({}, OPTIONS) == replace(OPTIONS, arguments=[])


def test_channel_arguments_are_numbers_or_texts() -> None:
    text = "grpc.max_connection_age_ms=200,grpc.lb_policy_name=round_robin,a=-1,b=x=y,"
    pairs = [("grpc.max_connection_age_ms", 200), ("grpc.lb_policy_name", "round_robin"), ("a", -1), ("b", "x=y")]
    assert channel_arguments(text) == pairs
    assert grpc_options_of({"grpc_channel_arguments": text}, OPTIONS).arguments == pairs
    assert channel_arguments("") == []


@pytest.mark.parametrize("text", ["a", "=1", "a=1,b"])
def test_other_arguments_are_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--grpc_channel_arguments holds '.*', but should be key=value,"):
        channel_arguments(text)


def test_tls_needs_to_know_whose_clients_to_trust(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*shlex.split(command), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    pem = {path: path.read_text().replace("\n", "\\n") for path in (key, certificate)}
    text = f'server_key: "{pem[key]}" server_cert: "{pem[certificate]}"'
    file = tmp_path / "ssl.config"
    for more in ("", f' custom_ca: "{pem[certificate]}" client_verify: true'):
        file.write_text(text + more)
        assert grpc_options_of({"ssl_config_file": str(file)}, OPTIONS).tls is not None
    file.write_text(text + " client_verify: true")
    with pytest.raises(TlsError, match=r"--ssl_config_file: .* client_verify needs custom_ca"):
        grpc_options_of({"ssl_config_file": str(file)}, OPTIONS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tls": cast(Any, object())}, "to gRPC, and FERRY_TLS_CERTIFICATE to all: give one of them"),
        ({"own_port": False}, "has no port of gRPC with FERRY_SINGLE_PORT"),
    ],
)
def test_tls_of_grpc_alone_has_a_port_of_its_own_and_one_source(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        grpc_options_of({"ssl_config_file": "/x"}, replace(OPTIONS, **options))
