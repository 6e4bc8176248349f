"""The small text files to which flags point."""

from __future__ import annotations

import re
from pathlib import Path

from app.codecs.protobuf.text_format import parse_text
from app.core.errors import InvalidRequest
from app.transports.tls.texts import TlsNames, TlsTexts

_METRICS_PATH = "/monitoring/prometheus/metrics"


def metrics_path(file: Path) -> str:
    """The path of the Prometheus page in a MonitoringConfig; empty for none. Raises InvalidRequest, OSError."""
    config = parse_text(file.read_text("utf-8", "replace"), "tensorflow.serving.MonitoringConfig").prometheus_config
    path: str = config.path or _METRICS_PATH
    if not re.fullmatch("/[^/?#][^?#]*", path):
        raise InvalidRequest(f"{file}: prometheus_config.path must be /and more, not {path!r}")
    return path if config.enable else ""


def read_tls(file: Path) -> TlsTexts:
    """The certificates and the key of an SSLConfig. Raises InvalidRequest, OSError."""
    config = parse_text(file.read_text("utf-8", "replace"), "tensorflow.serving.SSLConfig")
    for name in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(config, name):
            raise InvalidRequest(f"{file}: {name} must be a PEM text")
    if config.client_verify and not config.custom_ca:
        raise InvalidRequest(f"{file}: client_verify needs custom_ca, the certificate authority of trusted clients")
    client_ca = config.custom_ca.encode() if config.client_verify else b""
    names = TlsNames(f"{file}: server_cert", f"{file}: server_key", f"{file}: custom_ca")
    return TlsTexts(config.server_cert.encode(), config.server_key.encode(), client_ca, names)
