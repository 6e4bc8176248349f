"""All settings of `ferry serve`. Each is defined once, in the file of its topic (config/topics/).

config/sources.py reads the values; config/reference.py and `ferry serve --help` print the descriptions.
"""

from __future__ import annotations

from pydantic import ConfigDict

from app.config import topics
from app.config.topics.access import AccessSettings
from app.config.topics.batching import BatchingSettings
from app.config.topics.clients import ClientSettings
from app.config.topics.endpoints import EndpointSettings
from app.config.topics.execution import ExecutionSettings
from app.config.topics.observability import ObservabilitySettings
from app.config.topics.processes import ProcessSettings
from app.config.topics.repository import RepositorySettings

PREFIX = "FERRY_"

#: The settings that `ferry serve --help` shows first. Chosen: what most servers set.
MOST_USED = (
    "models",
    "rest_port",
    "grpc_port",
    "max_batch_size",
    "request_timeout_ms",
    "memory_budget_mb",
    "replicas",
    "frontends",
    "model_control",
    "access_file",
)


# Pydantic collects fields from the last base class to the first: read this list from below. In that order settings are
# checked and stand on the page, and the rule of a setting sees the settings before it.
class Settings(
    ObservabilitySettings,
    ProcessSettings,
    ClientSettings,
    ExecutionSettings,
    BatchingSettings,
    RepositorySettings,
    AccessSettings,
    EndpointSettings,
):
    """All settings. The constructor takes keyword arguments only; `sources.load_settings` also reads the environment
    and the settings file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), validate_default=True)

    @property
    def http_ports(self) -> dict[int, str]:
        """All ports of HTTP, and what the first lines of the log say of each."""
        tls = ", TLS" if self.tls_certificate else ""
        ports = {self.rest_port: f"{tls}, gRPC too" if self.single_port else tls}
        if self.operator_port:
            ports[self.operator_port] = f"{'' if self.operator_port_tls == 'off' else tls}, for operators"
        return ports

    @classmethod
    def by_topic(cls) -> dict[str, list[str]]:
        """The names of all settings by the title of their topic, in the order of definition."""
        kinds = [kind for kind in reversed(cls.__mro__) if kind.__module__.startswith(f"{topics.__name__}.")]
        return {str(kind.__doc__): list(kind.__annotations__) for kind in kinds}
