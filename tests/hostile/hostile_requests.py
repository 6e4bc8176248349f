"""Malformed requests for the served models, from a seed, so that every run is the same.

Requests that would change which models are served never name a served model.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from io import BytesIO
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from app.codecs.protobuf.messages import message_class, service_descriptor
from app.core.inference import STRING
from app.protocols.open_inference.binary_tensors import encode
from tests.hostile.mutations import damage_message, damaged, damaged_document
from tests.hostile.wire_requests import (
    HEADERS,
    PATHS,
    GrpcRequest,
    Hostile,
    HttpRequest,
    Inputs,
    as_bytes_on_the_wire,
    as_field,
    as_target,
    entry,
    infer_message,
    npy,
    npz,
    packed,
    plain,
    predict_message,
)

_PREDICTION, _MODELS, _INFERENCE = (
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "inference.GRPCInferenceService",
)
#: They would take served models away, or change what others see.
_LEFT_OUT = {"RepositoryModelUnload", "HandleReloadConfigRequest"}


class HostileRequests:
    """An endless variety, from good requests for `models`: inputs of the default signature by the model's name.

    Args:
        forms: only of these; empty for all. Raises ValueError for an unknown one.
    """

    def __init__(self, models: Mapping[str, Inputs], seed: int, forms: Collection[str] = ()) -> None:
        self._models = models
        self._random = Random(seed)  # noqa: S311 - it is to be the same each time
        makers: tuple[Callable[[str, Inputs], Hostile], ...] = (
            *(self._tensorflow_json, self._open_inference_json, self._open_inference_binary, self._open_inference_bare),
            *(self._npy, self._npz, self._message_pack, self._protobuf, self._image),
            *(self._tensorflow_grpc, self._other_grpc, self._open_inference_grpc, self._open_inference_stream),
            *(self._route, self._head, self._wire),
        )
        named = {make.__name__.removeprefix("_"): make for make in makers}
        if unknown := set(forms) - named.keys():
            raise ValueError(f"unknown: {', '.join(unknown)}; expected some of {', '.join(named)}")
        self._makers = [make for form, make in named.items() if not forms or form in forms]

    def __iter__(self) -> Iterator[Hostile]:
        while True:
            for make in self._makers:
                name = self._random.choice(list(self._models))
                yield make(name, self._models[name])

    def _damaged(self, content: bytes, other: bytes = b"") -> bytes:
        return damaged(self._random, content, other)

    def _json(self, document: Any) -> bytes:
        """Damaged as a document, as text, or both."""
        choice = self._random.random()
        if choice < 0.8:
            document = damaged_document(self._random, document)
        text = json.dumps(document, ensure_ascii=self._random.random() < 0.9)
        content = text.encode(errors="surrogatepass")
        return self._damaged(content) if choice > 0.6 else content

    def _post(self, group: str, path: str, body: bytes, content_type: str, **headers: str) -> HttpRequest:
        fields = {"Content-Type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
        match self._random.randrange(20):
            case 0:
                body, fields["Content-Encoding"] = gzip.compress(body, 1, mtime=0), "gzip"
            case 1:
                body, fields["Content-Encoding"] = self._damaged(gzip.compress(body, 1, mtime=0)), "gzip"
        return HttpRequest(group, "POST", path, fields, body)

    # --- TensorFlow Serving over REST ---

    def _tensorflow_json(self, name: str, inputs: Inputs) -> HttpRequest:
        columns = {key: plain(array) for key, array in inputs.items()}
        if self._random.random() < 0.5:
            document: Any = {"inputs": columns}
        else:
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            document = {"instances": rows if len(columns) > 1 else [next(iter(row.values())) for row in rows]}
        path = f"/v1/models/{name}:{self._random.choice(('predict', 'predict', 'predict', 'classify', 'regress'))}"
        if self._random.random() < 0.2:
            document = {"signature_name": "serving_default", "examples": [columns], "context": {}, **document}
        return self._post("v1 JSON", path, self._json(document), "application/json")

    def _predict(self, name: str, group: str, body: bytes, content_type: str) -> HttpRequest:
        query = self._random.choice(
            ("", "", "?output=y", "?signature_name=%ff", "?output=", "?&&=&;", "?output=a&output=a")
        )
        return self._post(group, f"/v1/models/{name}:predict{query}", body, content_type)

    def _npy(self, name: str, inputs: Inputs) -> HttpRequest:
        array = self._random.choice(list(inputs.values()))
        return self._predict(name, "v1 npy", self._damaged(npy(array), npz(inputs)), "application/x-npy")

    def _npz(self, name: str, inputs: Inputs) -> HttpRequest:
        return self._predict(name, "v1 npz", self._damaged(npz(inputs), npz(inputs)), "application/x-npz")

    def _message_pack(self, name: str, inputs: Inputs) -> HttpRequest:
        tensors = {
            key: {
                "dtype": "string" if array.dtype == STRING else array.dtype.name,
                "shape": list(array.shape),
                "data": array.ravel().tolist() if array.dtype == STRING else array.tobytes(),
            }
            for key, array in inputs.items()
        }
        document = {self._random.choice(("inputs", "inputs", "instances")): tensors}
        if self._random.random() < 0.6:
            document = damaged_document(self._random, document)
        body = packed(document)
        if self._random.random() < 0.5:
            body = self._damaged(body)
        return self._predict(name, "v1 MessagePack", body, "application/msgpack")

    def _protobuf(self, name: str, inputs: Inputs) -> HttpRequest:
        return self._predict(
            name, "v1 protobuf", self._message(predict_message(name, inputs)), "application/x-protobuf"
        )

    def _image(self, name: str, _: Inputs) -> HttpRequest:
        kind = self._random.choice(("png", "jpeg"))
        file = BytesIO()
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, kind)
        return self._predict(name, "v1 image", self._damaged(file.getvalue()), f"image/{kind}")

    # --- the Open Inference Protocol over REST ---

    def _open_inference_json(self, name: str, inputs: Inputs) -> HttpRequest:
        entries = [{**entry(key, array), "data": plain(array)} for key, array in inputs.items()]
        document = {
            "inputs": entries,
            "outputs": [{"name": "y", "parameters": {"classification": 1}}],
            "parameters": {"timeout": 10**7, "priority": 1, "binary_data_output": True},
            "id": "1",
        }
        for optional in ("outputs", "parameters", "id"):
            if self._random.random() < 0.7:
                del document[optional]
        return self._post("v2 JSON", f"/v2/models/{name}/infer", self._json(document), "application/json")

    def _open_inference_binary(self, name: str, inputs: Inputs) -> HttpRequest:
        contents = {key: bytes(encode(array)) for key, array in inputs.items()}
        entries = [
            {**entry(key, array), "parameters": {"binary_data_size": len(contents[key])}}
            for key, array in inputs.items()
        ]
        head, tail = json.dumps({"inputs": entries}).encode(), b"".join(contents.values())
        match self._random.randrange(4):
            case 0:
                head = self._json({"inputs": entries})
            case 1:
                tail = self._damaged(tail)
        length = str(len(head))
        if self._random.random() < 0.3:
            length = self._random.choice((str(len(head) + self._random.randint(-9, 9)), "", "-1", "x", "9" * 30))
        return self._post(
            "v2 binary",
            f"/v2/models/{name}/infer",
            head + tail,
            "application/octet-stream",
            Inference_Header_Content_Length=length,
        )

    def _open_inference_bare(self, name: str, inputs: Inputs) -> HttpRequest:
        array = self._random.choice(list(inputs.values()))
        body = self._damaged(bytes(encode(array)))
        return self._post("v2 bare tensor", f"/v2/models/{name}/infer", body, "application/octet-stream")

    # --- gRPC ---

    def _message(self, message: Any) -> bytes:
        """Damaged as a message, as bytes, or both."""
        choice = self._random.random()
        if choice < 0.7:
            damage_message(self._random, message)
        content: bytes = message.SerializeToString()
        return self._damaged(content) if choice > 0.5 else content

    def _tensorflow_grpc(self, name: str, inputs: Inputs) -> GrpcRequest:
        message = predict_message(name, inputs, self._random.random() < 0.5)
        return GrpcRequest("gRPC Predict", f"/{_PREDICTION}/Predict", self._message(message))

    def _other_grpc(self, name: str, _: Inputs) -> GrpcRequest:
        service = self._random.choice((_PREDICTION, _MODELS, _INFERENCE))
        methods = [each for each in service_descriptor(service).methods if each.name not in _LEFT_OUT]
        method = self._random.choice([each for each in methods if not each.client_streaming])
        message = message_class(method.input_type.full_name)()
        for field in ("name", "model_name"):
            if hasattr(message, field):
                setattr(message, field, name)
        if hasattr(message, "model_spec"):
            message.model_spec.name = name
        return GrpcRequest("gRPC others", f"/{service}/{method.name}", self._message(message))

    def _open_inference_grpc(self, name: str, inputs: Inputs) -> GrpcRequest:
        return GrpcRequest("gRPC ModelInfer", f"/{_INFERENCE}/ModelInfer", self._message(infer_message(name, inputs)))

    def _open_inference_stream(self, name: str, inputs: Inputs) -> GrpcRequest:
        body = self._message(infer_message(name, inputs))
        return GrpcRequest("gRPC stream", f"/{_INFERENCE}/ModelStreamInfer", body, streamed=True)

    # --- HTTP itself ---

    def _route(self, name: str, _: Inputs) -> HttpRequest:
        path = self._random.choice(PATHS).format(name)
        if self._random.random() < 0.8:
            path = "/" + as_target(self._damaged(path.encode()))
        method = self._random.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"))
        body = self._random.choice((b"", b"{}", b"[]", b"\0"))
        return HttpRequest("paths", method, path, {}, b"" if method in ("GET", "HEAD") else body)

    def _head(self, name: str, inputs: Inputs) -> HttpRequest:
        columns = {key: plain(array) for key, array in inputs.items()}
        fields = {}
        for field in self._random.sample(list(HEADERS), self._random.randint(1, 4)):
            value = self._random.choice(HEADERS[field])
            fields[field] = as_field(self._damaged(value.encode("latin-1"))) if self._random.random() < 0.3 else value
        path = self._random.choice((f"/v1/models/{name}:predict", f"/v2/models/{name}/infer", "/v2/repository/index"))
        return HttpRequest("headers", "POST", path, fields, json.dumps({"inputs": columns}).encode())

    def _wire(self, name: str, inputs: Inputs) -> HttpRequest:
        good = self._tensorflow_json(name, inputs)
        return HttpRequest("wire", "", "", {}, b"", self._damaged(as_bytes_on_the_wire(good)))
