"""HTTP and gRPC requests as bytes: paths, headers, and valid bodies of every format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import msgpack
import numpy as np

from app.codecs.protobuf.messages import message_class
from app.core.inference import STRING, Array
from app.protocols.open_inference.binary_tensors import encode
from app.protocols.open_inference.datatypes import described_datatype
from tests.support.tensor_protos import encode_tensor

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

PATHS = (
    *("/v1/models", "/v1/models/{}", "/v1/models/{}/metadata", "/v1/models/{}/versions/1:predict", "/predict"),
    *("/v1/models/{}/batching", "/v1/models/{}:predictStream"),
    *("/v1/models/{}/labels/x:predict", "/v1/models/{}:classify", "/v1/models/{}:regress", "/v2", "/v2/health/ready"),
    *("/v2/models/{}", "/v2/models/{}/config", "/v2/models/{}/stats", "/v2/models/{}/ready", "/v2/repository/index"),
    *("/v2/models/{}/versions/1/infer", "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status"),
    *("/v2/systemsharedmemory/region/a/register", "/v2/repository/models/no/load", "/v2/repository/models/no/unload"),
    *("*", "/", "/docs", "/openapi.json", "/livez", "/readyz", "/health", "/metrics"),
)
HEADERS = {
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
    "X-Request-Priority": ("0", "-1", "1.0", "99999999999999999999", "", "²", "٣".encode().decode("latin-1")),
    "Transfer-Encoding": ("identity", "gzip"),
    "Expect": ("100-continue", "x"),
    "Connection": ("close", "Upgrade, HTTP2-Settings"),
    "Upgrade": ("websocket", "h2c"),
    "Range": ("bytes=0-", "bytes=x"),
}


def as_bytes_on_the_wire(request: HttpRequest) -> bytes:
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


def infer_message(name: str, inputs: Inputs) -> Any:
    message = message_class("inference.ModelInferRequest")(model_name=name)
    for key, array in inputs.items():
        message.inputs.add(**entry(key, array))
        message.raw_input_contents.append(bytes(encode(array)))
    return message


def entry(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": described_datatype(array.dtype)}


def plain(array: Array) -> Any:
    if array.dtype == STRING:
        return np.array([each.decode() for each in array.ravel()], STRING).reshape(array.shape).tolist()
    return (array.real if array.dtype.kind == "c" else array).tolist()


def npy(array: Array) -> bytes:
    file = BytesIO()
    np.save(file, array.astype("S") if array.dtype == STRING else array)
    return file.getvalue()


def npz(inputs: Inputs) -> bytes:
    file = BytesIO()
    arrays: dict[str, Any] = {
        key: array.astype("S") if array.dtype == STRING else array for key, array in inputs.items()
    }
    np.savez(file, **arrays)
    return file.getvalue()


def packed(document: Any) -> bytes:
    try:
        packed: bytes = msgpack.packb(document, unicode_errors="surrogatepass")
    except (OverflowError, ValueError, RecursionError):  # integers or depths that it has no form for
        packed = b"\x81\xa6inputs" + b"\x91" * 600
    return packed


def as_target(path: bytes) -> str:
    """What a request line can hold; the rest is percent-encoded."""
    return "".join(chr(each) if 0x21 <= each < 0x7F else f"%{each:02X}" for each in path.lstrip(b"/"))


def as_field(value: bytes) -> str:
    return "".join(chr(each) for each in value if each >= 0x20 and each != 0x7F)
