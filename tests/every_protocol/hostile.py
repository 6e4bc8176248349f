"""Requests with something wrong in them, for whatever models are served; seeded, so every run is the same.

What would change which models are served is never asked of a model that is.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import Any

import msgpack
import numpy as np
from PIL import Image

from app.inference import STRING, Array
from app.protocols.messages import message_class, service_descriptor
from app.protocols.open_inference_binary import encode
from app.protocols.open_inference_datatypes import described_datatype
from app.protocols.tensor_protos import encode_tensor
from tests.every_protocol.mutations import damage_message, damaged, damaged_document

Headers = Mapping[str, str]
Inputs = Mapping[str, Array]


@dataclass(frozen=True)
class HttpRequest:
    """`raw`, where it is given, is everything that goes over the wire."""

    group: str
    method: str
    path: str
    headers: Headers
    body: bytes
    raw: bytes | None = None


@dataclass(frozen=True)
class GrpcRequest:
    """`rpc` is '/service/method'."""

    group: str
    rpc: str
    body: bytes
    streamed: bool = False


Hostile = HttpRequest | GrpcRequest

_PREDICTION, _MODELS, _INFERENCE = (
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "inference.GRPCInferenceService",
)
#: They would take served models away, or change what others see.
_LEFT_OUT = {"RepositoryModelUnload", "HandleReloadConfigRequest"}

_PATHS = (
    *("/v1/models", "/v1/models/{}", "/v1/models/{}/metadata", "/v1/models/{}/versions/1:predict", "/predict"),
    *("/v1/models/{}/labels/x:predict", "/v1/models/{}:classify", "/v1/models/{}:regress", "/v2", "/v2/health/ready"),
    *("/v2/models/{}", "/v2/models/{}/config", "/v2/models/{}/stats", "/v2/models/{}/ready", "/v2/repository/index"),
    *("/v2/models/{}/versions/1/infer", "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status"),
    *("/v2/systemsharedmemory/region/a/register", "/v2/repository/models/no/load", "/v2/repository/models/no/unload"),
    *("/", "/docs", "/openapi.json", "/livez", "/readyz", "/health", "/metrics"),
)
_HEADERS = {
    "Content-Type": ("application/json", "application/octet-stream", "application/x-npy", "text/html", "", "a/b;c=d"),
    "Accept": ("application/json", "application/x-npz;q=0.5", "image/png", "*/*;q=x", ";;;", ",", "application/*"),
    "Accept-Encoding": ("gzip", "deflate", "br;q=0", "*;q=nan", "gzip;q=1e999", ""),
    "Content-Encoding": ("gzip", "deflate", "identity", "br", "gzip, gzip", ""),
    "Inference-Header-Content-Length": (
        "0",
        "1",
        "-1",
        "99999999999999999999",
        "1e3",
        "",
        "٣".encode().decode("latin-1"),
    ),
    "X-Request-Timeout-Ms": ("0", "-1", "nan", "inf", "1e-9", "1e999", "", "0x10", "1_000"),
    "Transfer-Encoding": ("identity", "gzip"),
    "Expect": ("100-continue", "x"),
    "Connection": ("close", "Upgrade, HTTP2-Settings"),
    "Upgrade": ("websocket", "h2c"),
    "Range": ("bytes=0-", "bytes=x"),
}


class HostileRequests:
    """An endless variety, from good requests for `models`: inputs of the default signature by the model's name."""

    def __init__(self, models: Mapping[str, Inputs], seed: int) -> None:
        self._models = models
        self._random = Random(seed)  # noqa: S311 - it is to be the same each time
        self._makers: tuple[Callable[[str, Inputs], Hostile], ...] = (
            *(self._tensorflow_json, self._open_inference_json, self._open_inference_binary, self._open_inference_bare),
            *(self._npy, self._npz, self._message_pack, self._protobuf, self._image),
            *(self._tensorflow_grpc, self._other_grpc, self._open_inference_grpc, self._open_inference_stream),
            *(self._route, self._head, self._wire),
        )

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
                body, fields["Content-Encoding"] = gzip.compress(body, 1), "gzip"
            case 1:
                body, fields["Content-Encoding"] = self._damaged(gzip.compress(body, 1)), "gzip"
        return HttpRequest(group, "POST", path, fields, body)

    # --- TensorFlow Serving over REST ---

    def _tensorflow_json(self, name: str, inputs: Inputs) -> HttpRequest:
        columns = {key: _plain(array) for key, array in inputs.items()}
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
        return self._predict(name, "v1 npy", self._damaged(_npy(array), _npz(inputs)), "application/x-npy")

    def _npz(self, name: str, inputs: Inputs) -> HttpRequest:
        return self._predict(name, "v1 npz", self._damaged(_npz(inputs), _npz(inputs)), "application/x-npz")

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
        body = _packed(document)
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
        entries = [{**_entry(key, array), "data": _plain(array)} for key, array in inputs.items()]
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
            {**_entry(key, array), "parameters": {"binary_data_size": len(contents[key])}}
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
        return GrpcRequest("gRPC ModelInfer", f"/{_INFERENCE}/ModelInfer", self._message(_infer_message(name, inputs)))

    def _open_inference_stream(self, name: str, inputs: Inputs) -> GrpcRequest:
        body = self._message(_infer_message(name, inputs))
        return GrpcRequest("gRPC stream", f"/{_INFERENCE}/ModelStreamInfer", body, streamed=True)

    # --- HTTP itself ---

    def _route(self, name: str, _: Inputs) -> HttpRequest:
        path = self._random.choice(_PATHS).format(name)
        if self._random.random() < 0.8:
            path = "/" + _as_target(self._damaged(path.encode()))
        method = self._random.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"))
        body = self._random.choice((b"", b"{}", b"[]", b"\0"))
        return HttpRequest("paths", method, path, {}, b"" if method in ("GET", "HEAD") else body)

    def _head(self, name: str, inputs: Inputs) -> HttpRequest:
        columns = {key: _plain(array) for key, array in inputs.items()}
        fields = {}
        for field in self._random.sample(list(_HEADERS), self._random.randint(1, 4)):
            value = self._random.choice(_HEADERS[field])
            fields[field] = _as_field(self._damaged(value.encode("latin-1"))) if self._random.random() < 0.3 else value
        path = self._random.choice((f"/v1/models/{name}:predict", f"/v2/models/{name}/infer", "/v2/repository/index"))
        return HttpRequest("headers", "POST", path, fields, json.dumps({"inputs": columns}).encode())

    def _wire(self, name: str, inputs: Inputs) -> HttpRequest:
        good = self._tensorflow_json(name, inputs)
        return HttpRequest("wire", "", "", {}, b"", self._damaged(wire_form(good)))


def wire_form(request: HttpRequest) -> bytes:
    """The request as HTTP/1.1, on a connection that ends with it."""
    if request.raw is not None:
        return request.raw
    fields = {"Host": "x", "Connection": "close", **request.headers, "Content-Length": str(len(request.body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + request.body


def predict_message(name: str, inputs: Inputs, as_content: bool = True) -> Any:
    message = message_class("tensorflow.serving.PredictRequest")()
    message.model_spec.name = name
    for key, array in inputs.items():
        encode_tensor(array, message.inputs[key], as_content)
    return message


def _infer_message(name: str, inputs: Inputs) -> Any:
    message = message_class("inference.ModelInferRequest")(model_name=name)
    for key, array in inputs.items():
        message.inputs.add(**_entry(key, array))
        message.raw_input_contents.append(bytes(encode(array)))
    return message


def _entry(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": described_datatype(array.dtype)}


def _plain(array: Array) -> Any:
    if array.dtype == STRING:
        return np.array([each.decode() for each in array.ravel()], STRING).reshape(array.shape).tolist()
    return (array.real if array.dtype.kind == "c" else array).tolist()


def _npy(array: Array) -> bytes:
    file = BytesIO()
    np.save(file, array.astype("S") if array.dtype == STRING else array)
    return file.getvalue()


def _npz(inputs: Inputs) -> bytes:
    file = BytesIO()
    arrays: dict[str, Any] = {
        key: array.astype("S") if array.dtype == STRING else array for key, array in inputs.items()
    }
    np.savez(file, **arrays)
    return file.getvalue()


def _packed(document: Any) -> bytes:
    try:
        packed: bytes = msgpack.packb(document, unicode_errors="surrogatepass")
    except (OverflowError, ValueError, RecursionError):  # integers or depths that it has no form for
        packed = b"\x81\xa6inputs" + b"\x91" * 600
    return packed


def _as_target(path: bytes) -> str:
    """What a request line can hold; the rest is percent-encoded."""
    return "".join(chr(each) if 0x21 <= each < 0x7F else f"%{each:02X}" for each in path.lstrip(b"/"))


def _as_field(value: bytes) -> str:
    return "".join(chr(each) for each in value if each >= 0x20 and each != 0x7F)
