"""The calls of a client, whatever the protocol and whatever carries the requests."""

from __future__ import annotations

from collections.abc import Sequence

from ferry_client.arrays import Array, Inputs, is_complete, name_arrays
from ferry_client.codec import Codec, PredictCall
from ferry_client.errors import InvalidRequest, InvalidResponse, ServingError
from ferry_client.exchange import Exchange
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus


class Core:
    """Remembers the metadata of models that it had to ask for, until a reply suggests that it has changed."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._known: dict[ModelSpec, ModelMetadata] = {}

    def predict(
        self, spec: ModelSpec, inputs: Inputs, outputs: Sequence[str], timeout_s: float
    ) -> Exchange[dict[str, Array]]:
        wanted = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        metadata = None
        if self._codec.needs_metadata or not is_complete(inputs):
            metadata = self._known.get(spec) or (yield from self.metadata(spec))
            self._known[spec] = metadata
        try:
            call = PredictCall(spec, name_arrays(inputs, metadata), wanted, timeout_s)
            response = yield self._codec.predict_request(call)
            return self._codec.predict_response(call, response, metadata)
        except (InvalidRequest, InvalidResponse):
            self._known.pop(spec, None)
            raise

    def metadata(self, spec: ModelSpec) -> Exchange[ModelMetadata]:
        response = yield self._codec.metadata_request(spec)
        return self._codec.metadata_response(response, spec)

    def models(self) -> Exchange[list[ModelStatus]]:
        response = yield self._codec.models_request()
        return self._codec.models_response(response)

    def ready(self, spec: ModelSpec) -> Exchange[bool]:
        request = self._codec.ready_request(spec)
        try:
            response = yield request
            return self._codec.ready_response(response)
        except ServingError:
            return False
