"""What several transports need."""

from __future__ import annotations

import subprocess

import pytest

from tests.transports.tls.certificates import Authority


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A key and a certificate of 'localhost' that it signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*command.split(), *more], cwd=folder, check=True, capture_output=True)
    return (folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs certificates."""
    return Authority(tmp_path_factory.mktemp("authority"))
