"""The small text files to which flags point."""

from __future__ import annotations

import re
from pathlib import Path

from app.codecs.protobuf.text_format import parse_text
from app.core.errors import InvalidRequest
from app.transports.grpc.options import Tls

_METRICS_PATH = "/monitoring/prometheus/metrics"


def metrics_path(file: Path) -> str:
    """The path of the Prometheus page in a MonitoringConfig; empty for none. Raises InvalidRequest, OSError."""
    config = parse_text(file.read_text("utf-8", "replace"), "tensorflow.serving.MonitoringConfig").prometheus_config
    path: str = config.path or _METRICS_PATH
    if not re.fullmatch("/[^/?#][^?#]*", path):
        raise InvalidRequest(f"{file}: prometheus_config.path must be /and more, not {path!r}")
    return path if config.enable else ""


def read_tls(file: Path) -> Tls:
    """The certificates and the key of an SSLConfig. Raises InvalidRequest, OSError."""
    config = parse_text(file.read_text("utf-8", "replace"), "tensorflow.serving.SSLConfig")
    for name in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(config, name):
            raise InvalidRequest(f"{file}: {name} must be a PEM text")
    if config.client_verify and not config.custom_ca:
        raise InvalidRequest(f"{file}: client_verify needs custom_ca, the certificate authority of trusted clients")
    key, certificate, client_ca = config.server_key.encode(), config.server_cert.encode(), config.custom_ca.encode()
    return Tls(key, certificate, client_ca, config.client_verify)
