"""The interface of a protocol: how calls are written and how replies are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ferry_client.arrays import Array
from ferry_client.exchange import Request, Response
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus


@dataclass(frozen=True, slots=True)
class PredictCall:
    """One prediction. Empty `outputs` means all outputs; `timeout_s` is what is left of the call's time."""

    spec: ModelSpec
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    timeout_s: float


class ServingProtocol(Protocol):
    """A protocol, without I/O. Every `*_response` raises InvalidResponse if the reply does not follow the protocol."""

    #: Whether the model's metadata is needed to read a reply of predict.
    needs_metadata: ClassVar[bool]

    def predict_request(self, call: PredictCall) -> Request:
        """Raises InvalidRequest if the protocol cannot express an input."""

    def predict_response(
        self, call: PredictCall, response: Response, metadata: ModelMetadata | None
    ) -> dict[str, Array]:
        """The wanted outputs by name. `metadata` is given if `needs_metadata`."""

    def metadata_request(self, spec: ModelSpec) -> Request:
        """Raises InvalidRequest if the protocol does not describe that signature."""

    def metadata_response(self, response: Response, spec: ModelSpec) -> ModelMetadata:
        """Raises InvalidRequest if there is no such signature."""

    def models_request(self) -> Request: ...

    def models_response(self, response: Response) -> list[ModelStatus]: ...

    def ready_request(self, spec: ModelSpec) -> Request:
        """An empty name asks for the whole server. Raises InvalidRequest if the protocol cannot ask that."""

    def ready_response(self, response: Response) -> bool: ...
