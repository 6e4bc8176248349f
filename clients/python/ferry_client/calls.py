"""The calls of a client: the same for every protocol, blocking and asyncio. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ferry_client.arrays import Array, Inputs, is_complete, name_arrays
from ferry_client.errors import InvalidRequest, InvalidResponse, ServingError
from ferry_client.exchange import Exchange
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus
from ferry_client.protocol import PredictCall, ServingProtocol


class Calls:
    """Caches the metadata that it had to ask for, until an error suggests that the model has changed."""

    def __init__(self, protocol: ServingProtocol) -> None:
        self.protocol = protocol
        self._metadata: dict[ModelSpec, ModelMetadata] = {}

    def predict(
        self, spec: ModelSpec, inputs: Inputs, outputs: Sequence[str], timeout_s: float
    ) -> Exchange[dict[str, Array]]:
        wanted = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        metadata = None
        if self.protocol.needs_metadata or not is_complete(inputs):
            metadata = self._metadata.get(spec) or (yield from self.metadata(spec))
            self._metadata[spec] = metadata
        try:
            call = PredictCall(spec, name_arrays(inputs, metadata), wanted, timeout_s)
            response = yield self.protocol.predict_request(call)
            return self.protocol.predict_response(call, response, metadata)
        except (InvalidRequest, InvalidResponse):
            self._metadata.pop(spec, None)
            raise

    def metadata(self, spec: ModelSpec) -> Exchange[ModelMetadata]:
        response = yield self.protocol.metadata_request(spec)
        return self.protocol.metadata_response(response, spec)

    def models(self) -> Exchange[list[ModelStatus]]:
        response = yield self.protocol.models_request()
        return self.protocol.models_response(response)

    def ready(self, spec: ModelSpec) -> Exchange[bool]:
        request = self.protocol.ready_request(spec)
        try:
            response = yield request
            return self.protocol.ready_response(response)
        except ServingError:
            return False
