"""What a protocol has to say: how calls are written and replies read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ferry_client.arrays import Array
from ferry_client.exchange import Request, Response
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus


@dataclass(frozen=True, slots=True)
class PredictCall:
    """No `outputs` means all of them."""

    spec: ModelSpec
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    timeout_s: float


class Codec(Protocol):
    """A protocol, without any I/O. What reads a reply raises InvalidResponse where it makes no sense."""

    #: Whether predict's replies can only be read by who knows the model's metadata.
    needs_metadata: ClassVar[bool]

    def predict_request(self, call: PredictCall) -> Request:
        """Raises InvalidRequest where the protocol has no form for an input."""

    def predict_response(
        self, call: PredictCall, response: Response, metadata: ModelMetadata | None
    ) -> dict[str, Array]:
        """The outputs wanted, by name. `metadata` is there where it is needed."""

    def metadata_request(self, spec: ModelSpec) -> Request:
        """Raises InvalidRequest where the protocol does not describe that signature."""

    def metadata_response(self, response: Response, spec: ModelSpec) -> ModelMetadata:
        """Raises InvalidRequest where there is no such signature."""

    def models_request(self) -> Request: ...

    def models_response(self, response: Response) -> list[ModelStatus]: ...

    def ready_request(self, spec: ModelSpec) -> Request:
        """The name is empty for the server as a whole. Raises InvalidRequest where that has no form."""

    def ready_response(self, response: Response) -> bool: ...
