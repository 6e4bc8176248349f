"""Access: administration, keys, the port for operators, TLS, web pages of other sites, the page of metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from app.config.rules import AbsoluteFolders, AccessFilePath, WritableFile
from app.config.values import Names


class AccessSettings(BaseModel):
    """Access: administration, keys, the port for operators, TLS, web pages, metrics."""

    model_control: Literal["none", "explicit"] = Field(
        "none",
        description="Administration by callers: load and unload models, HandleReloadConfigRequest, PATCH of batching "
        "options, registering shared memory. none: rejected with 403 or PERMISSION_DENIED. explicit: allowed, but not "
        "to web pages of other sites. Without access_file, every client that reaches the port may administer: keep "
        "strangers from the port.",
    )
    model_roots: AbsoluteFolders = Field(
        default_factory=list,
        description="Absolute folders below which a HandleReloadConfigRequest may name base paths, such as "
        "/models,/data/models. Empty: those that hold the base paths of the operator's own flags and file.",
    )
    access_file: AccessFilePath = Field(
        "",
        description="A YAML or JSON file of API keys and token issuers (docs/access.md). With a file, every request "
        "needs a credential, except the probes of liveness and readiness; the file is read anew when it changes. "
        "Empty: everybody may do what the other settings allow.",
    )
    audit_log: WritableFile = Field(
        "",
        description="A file that the lines of the audit log are also written to, as JSON: administration, denied "
        "requests, credentials read anew. Empty: the lines are in the log alone.",
    )
    admin_hosts: Names[str] = Field(
        default_factory=list,
        description="Names of this server, such as ferry.example.org, whose web pages may administer over plain HTTP. "
        "Without an entry, pages of this server may that come by https, from an IP address, a name without a dot or "
        "*.localhost; so may clients that are no browsers.",
    )
    operator_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="A further port of HTTP and gRPC, for operators: the metrics page, /health, the batching page, "
        "statistics, administration, shared memory and /docs are answered on this port only, and inference is not "
        "answered on it. Other ports answer these paths with 404 or UNIMPLEMENTED; /livez, /readyz, states and "
        "metadata of models are on all ports. "
        "gRPC comes by HTTP/2: by TLS or by prior knowledge. 0: everything is on rest_port and grpc_port.",
    )
    tls_certificate: str = Field(
        "",
        description="PEM file of the server's certificate, followed by the intermediate certificates. It turns TLS 1.2 "
        "and 1.3 on for all ports of HTTP and gRPC (for operator_port see operator_port_tls). Changed files are used "
        "by new connections within seconds. Empty: no TLS.",
    )
    tls_key: str = Field(
        "",
        validate_default=True,
        description="File of the private key of tls_certificate in PEM, without a passphrase.",
    )
    tls_client_ca: str = Field(
        "",
        description="File of the authorities of clients in PEM (mutual TLS): a client without a certificate that one "
        "of these authorities signed gets no connection. Empty: clients need none.",
    )
    operator_port_tls: Literal["same", "server", "off"] = Field(
        "same",
        description="TLS on operator_port. same: as on rest_port. server: clients need no certificate there; "
        "Kubernetes' probes cannot have one. off: no TLS.",
    )
    cors: bool = Field(False, description="Let web pages of any origin send requests (CORS).")
    metrics_path: str = Field(
        "",
        pattern="^(/[^/?#][^?#]*)?$",
        description="A second path for the metrics page, such as /monitoring/prometheus/metrics. If set, the page also "
        "has the metrics that TensorFlow Serving has, by its names. Empty: none.",
    )

    @field_validator("operator_port")
    @classmethod
    def _operator_port_is_another(cls, port: int, others: ValidationInfo) -> int:
        if port and port in {others.data.get(name) for name in ("grpc_port", "rest_port")}:
            raise ValueError("another port than rest_port and grpc_port, or 0")
        if port and not others.data.get("rest", True):
            raise ValueError("0 where rest is off: it is a port of HTTP")
        return port

    @field_validator("tls_key")
    @classmethod
    def _key_and_certificate_go_together(cls, key: str, others: ValidationInfo) -> str:
        if bool(key) != bool(others.data.get("tls_certificate")):
            raise ValueError("empty without tls_certificate" if key else "the file of the key of tls_certificate")
        return key

    @field_validator("tls_client_ca")
    @classmethod
    def _clients_are_verified_with_tls(cls, authorities: str, others: ValidationInfo) -> str:
        if authorities and not others.data.get("tls_certificate"):
            raise ValueError("empty without tls_certificate, which turns TLS on")
        return authorities
