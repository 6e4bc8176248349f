"""Callers that send a server the largest bodies of each format, 24 at once, while digits are asked.

    python -m tests.deploy.image.body_callers PORT GRPC_PORT [--connections 10000]

They never send more bytes than a body's head says. What they see is judged: each body is answered or rejected for a
reason, and no digit is missed. Used by check_memory.py; as a command it prints what came, for a server in any cgroup.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import resource
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import grpc
import numpy as np

from tests.deploy.manifests import ROOT

CALLERS = 24
#: The default of max_body_bytes and grpc_max_message_bytes.
MOST_BYTES = 64 * 2**20
TIMEOUT_S = 60.0

_PREDICT, _INFER = "/v1/models/digits:predict", "/v2/models/digits/infer"
_TOLD = re.compile(r"a body of ([\d.,]+) MB of JSON, or ([\d.,]+) MB of binary")
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

#: What texts name that reject a body for its size.
_REASONS = ("memory", "larger than", "The queue is full")

#: (status, text) of one body; 0 is answered, by gRPC or HTTP.
Outcome = tuple[str, str]


@dataclass
class Seen:
    """What came of bodies, by format; how many digits were answered, and what else came in place of one."""

    bodies: dict[str, Counter[str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    digits: int = 0
    missed: list[str] = field(default_factory=list)

    def unexplained(self) -> list[str]:
        """Outcomes that neither answer a body nor say why it is rejected, and what of it helps."""
        legal = {"200", "413", "503", "OK", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
        strange = [f"{name}: {status}" for name, each in self.bodies.items() for status in each if status not in legal]
        return strange + [text for text in self.texts if not any(reason in text for reason in _REASONS)]


@dataclass(frozen=True)
class Format:
    """`make`: a body of at most so many bytes; `send`: what came of one. `binary`: which limit is told of it."""

    binary: bool
    make: Callable[[int], bytes]
    send: Callable[[tuple[int, int], bytes], Outcome]


# --- bodies ---

_ROW = "[" + ",".join(["[0,0,0,0,0,0,0,0]"] * 8) + "]"


def _repeated(start: str, unit: str, end: str, size: int) -> bytes:
    more = max(1, (size - len(start) - len(end)) // (len(unit) + 1)) - 1
    return (start + unit + f",{unit}" * more + end).encode()


def _rows_of(size: int) -> int:
    return max(1, (size - 1024) // 256)


def _oip_binary(size: int) -> bytes:
    rows = _rows_of(size)
    tensor = {"name": "image", "datatype": "FP32", "shape": [rows, 8, 8]}
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": rows * 256}}]}).encode()
    return head + bytes(rows * 256)


def _oip_json(size: int) -> bytes:
    rows = max(1, (size - 1024) // 128)
    head = f'{{"inputs":[{{"name":"image","datatype":"FP32","shape":[{rows},8,8],"data":['
    return (head + "0" + ",0" * (rows * 64 - 1) + "]}]}").encode()


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _tensorflow(tensor_field: int) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        rows = _rows_of(size)
        shape = b"".join(_field(2, b"\x08" + _varint(each)) for each in (rows, 8, 8))
        tensor = b"\x08\x01" + _field(2, shape) + _field(tensor_field, bytes(rows * 256))
        return _field(1, _field(1, b"digits")) + _field(2, _field(1, b"image") + _field(2, tensor))

    return make


def _oip_raw(size: int) -> bytes:
    rows = _rows_of(size)
    tensor = _field(1, b"image") + _field(2, b"FP32") + _field(3, _varint(rows) + b"\x08\x08")
    return _field(1, b"digits") + _field(5, tensor) + _field(7, bytes(rows * 256))


#: A tf.Example whose list `image` has 64 floats.
_PIXELS = _field(1, b"image") + _field(2, _field(2, _field(1, bytes(256))))
_EXAMPLE = base64.b64encode(_field(1, _field(1, _PIXELS))).decode()


# --- sending ---


def _http(path: str, **headers: str) -> Callable[[tuple[int, int], bytes], Outcome]:
    def send(ports: tuple[int, int], body: bytes) -> Outcome:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        if path == _INFER and body.startswith(b'{"inputs"') and b"binary_data_size" in body[:400]:
            own["Inference-Header-Content-Length"] = str(body.index(b"]}", body.index(b"}}")) + 2)
        connection = http.client.HTTPConnection("127.0.0.1", ports[0], timeout=TIMEOUT_S)
        try:
            connection.connect()
            try:
                connection.request("POST", path, body, own)
            except (BrokenPipeError, ConnectionResetError):
                connection.sock.settimeout(TIMEOUT_S)  # it was rejected before it was read whole
            reply = connection.getresponse()
            content = reply.read()
            return str(reply.status), "" if reply.status == 200 else content.decode()
        finally:
            connection.close()

    return send


def _grpc(method: str) -> Callable[[tuple[int, int], bytes], Outcome]:
    def send(ports: tuple[int, int], body: bytes) -> Outcome:
        with grpc.insecure_channel(f"127.0.0.1:{ports[1]}", options=_UNLIMITED) as channel:
            try:
                channel.unary_unary(method)(body, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                return error.code().name, error.details() or ""
            return "OK", ""

    return send


_TFS, _V2 = "/tensorflow.serving.PredictionService/Predict", "/inference.GRPCInferenceService/ModelInfer"

FORMATS = {
    "JSON rows": Format(False, lambda size: _repeated('{"instances":[', _ROW, "]}", size), _http(_PREDICT)),
    "JSON named rows": Format(
        False, lambda size: _repeated('{"instances":[', f'{{"image":{_ROW}}}', "]}", size), _http(_PREDICT)
    ),
    "JSON columns": Format(False, lambda size: _repeated('{"inputs":{"image":[', _ROW, "]}}", size), _http(_PREDICT)),
    "base64": Format(
        False,
        lambda size: _repeated('{"signature_name":"classify","instances":[', f'{{"b64":"{_EXAMPLE}"}}', "]}", size),
        _http(_PREDICT),
    ),
    "letters": Format(
        False, lambda size: _repeated('{"signature_name":"classify","instances":[', '"a"', "]}", size), _http(_PREDICT)
    ),
    "OIP JSON": Format(False, _oip_json, _http(_INFER)),
    "OIP binary": Format(True, _oip_binary, _http(_INFER)),
    "gRPC tensor_content": Format(True, _tensorflow(4), _grpc(_TFS)),
    "gRPC float_val": Format(True, _tensorflow(5), _grpc(_TFS)),
    "gRPC raw contents": Format(True, _oip_raw, _grpc(_V2)),
}
GZIP = Format(
    False,
    lambda size: gzip.compress(_repeated('{"instances":[', "[[" + "0.1234567," * 7 + "1]" + "]", "]}", size), 1),
    _http(_PREDICT, Content_Encoding="gzip"),
)

#: Those whose largest legal body is sent: one for each way in.
_LEGAL = ("JSON rows", "OIP binary", "gRPC tensor_content")


# --- together ---


def call(ports: tuple[int, int], seen: Seen, name: str, form: Format, size: int) -> None:
    """24 callers send one body each, at once."""
    body = form.make(size)

    def one(_: int) -> Outcome:
        try:
            return form.send(ports, body)
        except OSError as error:
            return type(error).__name__, ""

    with ThreadPoolExecutor(CALLERS) as pool:
        outcomes = list(pool.map(one, range(CALLERS)))
    seen.bodies.setdefault(name, Counter()).update(status for status, _ in outcomes)
    seen.texts.update(text for _, text in outcomes if text)


def told_bytes(ports: tuple[int, int], form: Format) -> int:
    """Bytes of the largest body of this format that the server says it takes, when it is told that more comes."""
    connection = http.client.HTTPConnection("127.0.0.1", ports[0], timeout=TIMEOUT_S)
    connection.putrequest("POST", _PREDICT)
    connection.putheader("Content-Length", str(MOST_BYTES))
    connection.endheaders()
    text = connection.getresponse().read().decode()
    connection.close()
    found = _TOLD.search(text)
    assert found, text
    return int(0.95 * float(found.group(1 + form.binary).replace(",", "")) * 2**20)


@contextmanager
def digits_asked(ports: tuple[int, int], seen: Seen) -> Iterator[None]:
    """A digit is asked every 0.2 s; within 20 s each has its answer."""
    sample = json.loads((ROOT / "models" / "digits" / "samples.json").read_text())["samples"][0]
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.2):
            connection = http.client.HTTPConnection("127.0.0.1", ports[0], timeout=20)
            try:
                connection.request("POST", _PREDICT, json.dumps({"instances": [sample["image"]]}))
                reply = connection.getresponse()
                content = reply.read()
                right = reply.status == 200 and np.argmax(json.loads(content)["predictions"][0]) == sample["label"]
                seen.digits += right
                if not right:
                    seen.missed.append(f"{reply.status} {content[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                seen.missed.append(repr(error))
            finally:
                connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[None]:
    """So many connections that send nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 512)), hard))
    try:
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def all_formats(ports: tuple[int, int], connections: int) -> Seen:
    """The largest legal body, and the largest that the server says it takes, of each format and beside connections."""
    seen = Seen()
    with digits_asked(ports, seen):
        for name, form in FORMATS.items():
            if name in _LEGAL:
                call(ports, seen, f"{name}, legal", form, MOST_BYTES)
            call(ports, seen, f"{name}, told", form, told_bytes(ports, form))
        call(ports, seen, "gzip", GZIP, MOST_BYTES)
        with idle_connections(ports[0], connections):
            for name in _LEGAL:
                call(ports, seen, f"{name}, connections", FORMATS[name], told_bytes(ports, FORMATS[name]))
    return seen


def main() -> None:
    """Prints what came."""
    started = time.monotonic()
    seen = all_formats((int(sys.argv[1]), int(sys.argv[2])), int(sys.argv[4]) if len(sys.argv) > 4 else 10_000)
    lines = [f"{name:34} {dict(outcomes)}" for name, outcomes in seen.bodies.items()]
    lines += [f"digits {seen.digits}, missed {seen.missed[:5]}", f"unexplained {seen.unexplained()[:5]}"]
    lines += [text[:300] for text in sorted(seen.texts)[:8]] + [f"{time.monotonic() - started:.0f} s"]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
