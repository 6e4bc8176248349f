"""The Open Inference Protocol v2 over REST, with tensors in binary both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ferry_client.arrays import STRING, Array
from ferry_client.binary import DTYPES, datatype_of, decode, dtype_of, encode
from ferry_client.errors import InvalidRequest, InvalidResponse
from ferry_client.exchange import Request, Response, model_path, parse
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus, tensor_metadata
from ferry_client.protocol import PredictCall

_PREFIX = "/v2/models"
_LENGTH_HEADER = "inference-header-content-length"

#: Raised while reading a document that does not follow the protocol.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


class OpenInference:
    """See ServingProtocol. Works with every server that has the binary tensor extension, such as Triton."""

    needs_metadata: ClassVar[bool] = False

    def predict_request(self, call: PredictCall) -> Request:
        tails = {name: encode(array) for name, array in call.inputs.items() if datatype_of(name, array)}
        head = json.dumps(
            {
                "inputs": [_input(name, array, len(tails[name])) for name, array in call.inputs.items()],
                "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in call.outputs],
                "parameters": _parameters(call),
            }
        ).encode()
        return Request(
            "POST",
            model_path(_PREFIX, call.spec) + "/infer",
            {"content-type": "application/octet-stream", _LENGTH_HEADER: str(len(head))},
            b"".join([head, *tails.values()]),
        )

    def predict_response(
        self,
        call: PredictCall,
        response: Response,
        metadata: ModelMetadata | None,  # noqa: ARG002 - replies describe themselves here
    ) -> dict[str, Array]:
        try:
            outputs = dict(_read_outputs(response))
            return {name: outputs[name] for name in call.outputs or outputs}
        except _MALFORMED as error:
            raise InvalidResponse(f"The reply does not follow the Open Inference Protocol: {error!r}") from error

    def metadata_request(self, spec: ModelSpec) -> Request:
        if spec.signature:
            raise InvalidRequest(
                "The Open Inference Protocol describes only the default signature; "
                f"inputs for signature {spec.signature!r} must be numpy arrays by name"
            )
        return Request("GET", model_path(_PREFIX, spec))

    def metadata_response(self, response: Response, spec: ModelSpec) -> ModelMetadata:  # noqa: ARG002 - as above
        document = response.document()
        try:
            inputs, outputs = (
                {
                    each["name"]: tensor_metadata(each["name"], DTYPES.get(each["datatype"]), each["shape"])
                    for each in document[key]
                }
                for key in ("inputs", "outputs")
            )
            versions = tuple(map(str, document.get("versions", ())))
            return ModelMetadata(str(document["name"]), versions, inputs, outputs)
        except _MALFORMED as error:
            raise InvalidResponse(f"The metadata does not follow the Open Inference Protocol: {error!r}") from error

    def models_request(self) -> Request:
        return Request("POST", "/v2/repository/index", {"content-type": "application/json"}, b"{}")

    def models_response(self, response: Response) -> list[ModelStatus]:
        document = response.document()
        try:
            return [
                ModelStatus(
                    each["name"], str(each.get("version", "")), each.get("state") == "READY", each.get("reason", "")
                )
                for each in document
            ]
        except _MALFORMED as error:
            raise InvalidResponse(f"The index does not follow the Open Inference Protocol: {error!r}") from error

    def ready_request(self, spec: ModelSpec) -> Request:
        path = model_path(_PREFIX, spec) + "/ready" if spec.name else "/v2/health/ready"
        return Request("GET", path, retried=False)

    def ready_response(self, response: Response) -> bool:
        """The protocol defines a document; Triton sends a status without one."""
        document = response.document() if response.body else {}
        return not isinstance(document, dict) or document.get("ready", True) is True


def _parameters(call: PredictCall) -> dict[str, Any]:
    """The timeout is in microseconds."""
    parameters: dict[str, Any] = {"binary_data_output": True, "timeout": max(1, int(call.timeout_s * 1e6))}
    if call.spec.signature:
        parameters["signature_name"] = call.spec.signature
    return parameters


def _input(name: str, array: Array, size: int) -> dict[str, Any]:
    parameters = {"binary_data_size": size}
    return {"name": name, "shape": array.shape, "datatype": datatype_of(name, array), "parameters": parameters}


def _read_outputs(response: Response) -> Iterator[tuple[str, Array]]:
    length = int(response.headers.get(_LENGTH_HEADER, len(response.body)))
    whole = memoryview(response.body)
    tail = whole[length:]
    for output in parse(bytes(whole[:length]))["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        dtype, shape = dtype_of(output["name"], output["datatype"]), tuple(map(int, output["shape"]))
        if size is None:
            yield output["name"], _read_json(output["data"], dtype, shape)
            continue
        yield output["name"], decode(tail[:size], dtype, shape)
        tail = tail[size:]


def _read_json(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The array of an output in JSON, from a server without binary replies. `values` may be flat or nested."""
    array = np.array(values, dtype).reshape(shape)
    if dtype == STRING:
        array = np.array([value.encode() for value in array.reshape(-1).tolist()], STRING).reshape(shape)
    return array
