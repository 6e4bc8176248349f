from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import InvalidRequest
from app.model_server.text_files import metrics_path, read_tls

KEY, CERTIFICATE = "-----BEGIN PRIVATE KEY-----\\nk", "-----BEGIN CERTIFICATE-----\\nc"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('prometheus_config { enable: true, path: "/metrics/here" }', "/metrics/here"),
        ("prometheus_config { enable: true }", "/monitoring/prometheus/metrics"),
        ('prometheus_config { enable: false, path: "/x" }', ""),
        ("", ""),
    ],
)
def test_where_the_metrics_page_lies(text: str, path: str, file: Path) -> None:
    file.write_text(text)
    assert metrics_path(file) == path


@pytest.mark.parametrize("path", ["x/y", "/", "/a?b", "/a#b"])
def test_a_path_that_is_none_is_rejected(path: str, file: Path) -> None:
    file.write_text(f'prometheus_config {{ enable: true, path: "{path}" }}')
    with pytest.raises(InvalidRequest, match=r"prometheus_config\.path must be /and more, not"):
        metrics_path(file)


def test_tls_texts(file: Path) -> None:
    file.write_text(f'server_key: "{KEY}" server_cert: "{CERTIFICATE}" custom_ca: "ca" client_verify: true')
    key, certificate = (text.replace("\\n", "\n").encode() for text in (KEY, CERTIFICATE))
    read = read_tls(file)
    assert (read.certificate, read.key, read.client_ca) == (certificate, key, b"ca")


@pytest.mark.parametrize(
    ("text", "rejection"),
    [
        (f'server_cert: "{CERTIFICATE}"', "server_key must be a PEM text"),
        (f'server_key: "{KEY}" server_cert: "/etc/cert.pem"', "server_cert must be a PEM text"),
    ],
)
def test_tls_without_its_texts_is_rejected(text: str, rejection: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=rejection):
        read_tls(file)


@pytest.mark.parametrize("read", [metrics_path, read_tls])
def test_files_that_are_something_else_are_rejected(read: Callable[[Path], object], file: Path) -> None:
    file.write_text("model_config_list {}")
    with pytest.raises(InvalidRequest, match=r"^Error parsing text-format tensorflow"):
        read(file)
    with pytest.raises(FileNotFoundError):
        read(file.with_name("none"))
