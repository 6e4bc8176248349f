"""TensorFlow Serving's REST API: JSON in its columnar form, types from the model's metadata."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any, ClassVar

import numpy as np

from ferry_client.arrays import BFLOAT16, NO_BFLOAT16, STRING, Array
from ferry_client.errors import InvalidRequest, InvalidResponse, Unsupported
from ferry_client.exchange import Request, Response, model_path
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus, TensorMetadata, tensor_metadata
from ferry_client.protocol import PredictCall

_PREFIX = "/v1/models"
_DEFAULT_SIGNATURE = "serving_default"
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)

_DTYPES: dict[str, np.dtype[Any]] = {
    "DT_BOOL": np.dtype(np.bool_),
    "DT_DOUBLE": np.dtype(np.float64),
    "DT_FLOAT": np.dtype(np.float32),
    "DT_HALF": np.dtype(np.float16),
    "DT_STRING": STRING,
    **{f"DT_{kind}{bits}": np.dtype(f"{kind.lower()}{bits}") for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
}
if BFLOAT16 is not None:
    _DTYPES["DT_BFLOAT16"] = BFLOAT16


class TensorFlowJson:
    """See ServingProtocol. Strings are sent as base64, since they may hold any bytes; unwanted outputs are dropped."""

    needs_metadata: ClassVar[bool] = True

    def predict_request(self, call: PredictCall) -> Request:
        document = {
            "signature_name": call.spec.signature or _DEFAULT_SIGNATURE,
            "inputs": {name: _write(name, array) for name, array in call.inputs.items()},
        }
        path = model_path(_PREFIX, call.spec) + ":predict"
        return Request("POST", path, {"content-type": "application/json"}, json.dumps(document).encode())

    def predict_response(
        self, call: PredictCall, response: Response, metadata: ModelMetadata | None
    ) -> dict[str, Array]:
        specs = metadata.outputs if metadata else {}
        unknown = [name for name in call.outputs if name not in specs]
        if unknown:
            raise InvalidRequest(f"Unknown output {unknown[0]!r}; the signature has {', '.join(map(repr, specs))}")
        document = response.document()
        try:
            found = document["outputs"]
            values = {next(iter(specs)): found} if len(specs) == 1 else found
            return {name: _read(values[name], specs[name]) for name in call.outputs or specs}
        except _MALFORMED as error:
            raise InvalidResponse(f"The reply does not fit the model's metadata: {error!r}") from error

    def metadata_request(self, spec: ModelSpec) -> Request:
        return Request("GET", model_path(_PREFIX, spec) + "/metadata")

    def metadata_response(self, response: Response, spec: ModelSpec) -> ModelMetadata:
        document = response.document()
        try:
            signatures = document["metadata"]["signature_def"]["signature_def"]
            name = spec.signature or _DEFAULT_SIGNATURE
            if name not in signatures:
                raise InvalidRequest(f"The model has no signature {name!r}; it has {', '.join(map(repr, signatures))}")
            inputs, outputs = (
                {tensor: _tensor(tensor, each) for tensor, each in signatures[name][key].items()}
                for key in ("inputs", "outputs")
            )
            model = document["model_spec"]
            return ModelMetadata(model["name"], (str(model["version"]),), inputs, outputs)
        except _MALFORMED as error:
            raise InvalidResponse(f"The metadata is not TensorFlow Serving's: {error!r}") from error

    def models_request(self) -> Request:
        """Ferry's list of models; TensorFlow Serving has none and rejects this request."""
        return Request("GET", _PREFIX)

    def models_response(self, response: Response) -> list[ModelStatus]:
        document = response.document()
        try:
            return [
                ModelStatus(
                    model["name"],
                    str(each["version"]),
                    each["state"] == "AVAILABLE",
                    each["status"]["error_message"],
                )
                for model in document["models"]
                for each in model["model_version_status"]
            ]
        except _MALFORMED as error:
            raise InvalidResponse(f"The list of models is not Ferry's: {error!r}") from error

    def ready_request(self, spec: ModelSpec) -> Request:
        if not spec.name:
            raise InvalidRequest("TensorFlow Serving reports readiness per model only: name a model")
        return Request("GET", model_path(_PREFIX, spec), retried=False)

    def ready_response(self, response: Response) -> bool:
        try:
            return any(each["state"] == "AVAILABLE" for each in response.document()["model_version_status"])
        except _MALFORMED as error:
            raise InvalidResponse(f"The status is not TensorFlow Serving's: {error!r}") from error


def _tensor(name: str, document: dict[str, Any]) -> TensorMetadata:
    shape = document["tensor_shape"]
    sizes = None if shape.get("unknown_rank") else [int(dim["size"]) for dim in shape.get("dim", ())]
    return tensor_metadata(name, _DTYPES.get(document["dtype"]), sizes)


def _write(name: str, array: Array) -> Any:
    if array.dtype not in _DTYPES.values():
        raise Unsupported(f"Input {name!r} is {array.dtype}; TensorFlow Serving's JSON has no such type")
    if array.dtype == STRING:
        texts = [{"b64": b64encode(text).decode()} for text in array.reshape(-1).tolist()]
        return np.array(texts, STRING).reshape(array.shape).tolist()
    return (array.astype(np.float32) if array.dtype == BFLOAT16 else array).tolist()


def _read(value: Any, spec: TensorMetadata) -> Array:
    if spec.dtype is None:
        hint = f"; if it {NO_BFLOAT16}" if BFLOAT16 is None else ""
        raise ValueError(f"output {spec.name!r} has a type that numpy does not have{hint}")
    if spec.dtype == STRING:
        array = np.array(_bytes(value), STRING)
    else:
        array = np.array(value, spec.dtype)
        if spec.dtype.kind in "iu" and not np.array_equal(array, np.asarray(value)):
            raise ValueError(f"output {spec.name!r} is not of {spec.dtype}")
    return array if array.size else array.reshape(_empty_shape(array.shape, spec.shape))


def _bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_bytes(each) for each in value]
    return value.encode() if isinstance(value, str) else b64decode(value["b64"], validate=True)


def _empty_shape(seen: tuple[int, ...], declared: tuple[int | None, ...] | None) -> tuple[int, ...]:
    """The shape of an empty tensor: JSON does not hold the sizes after the first empty axis, the metadata does."""
    return seen + tuple(size or 0 for size in (declared or ())[len(seen) :])
