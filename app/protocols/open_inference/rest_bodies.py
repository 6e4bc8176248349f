"""Bodies of infer requests and replies over REST: JSON, JSON with binary tensors after it, or one bare tensor.

Source: the protocol's "binary tensor data extension" (Triton, docs/protocol/extension_binary_data.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np
import orjson

from app.codecs.at_once import MOST_VALUES
from app.codecs.json.long_arrays import SHORTEST_BYTES
from app.codecs.json.nested_lists import tensor
from app.codecs.json.writing import dumps, dumps_in_slices, takes_long, texts_of_requests
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import STRING, Array, Buffer, InferenceResponse, ModelSignature, TensorSpec
from app.protocols.open_inference.binary_tensors import decode, encode
from app.protocols.open_inference.datatypes import checked_shape, datatype_of, declared_input
from app.protocols.open_inference.documents.json_documents import (
    decode_data,
    encode_data,
    list_field,
    named_objects,
    parameters_field,
    parse,
    text_field,
)
from app.protocols.open_inference.infer_call import (
    InferCall,
    WantedOutput,
    check_count,
    choose_signature,
    make_call,
    wanted_output,
)
from app.protocols.open_inference.parameters import RequestParameters, number, request_parameters
from app.protocols.open_inference.shared_memory import ReadRegion, WriteRegion, region_slice
from app.transports.http.asgi import Header
from app.transports.http.compression import MIN_BYTES, compress
from app.transports.http.replies import header_lines
from app.transports.rendered_pages import Page

Signatures = Mapping[str, ModelSignature]

#: The parameters of an input whose data is outside of the JSON.
_ELSEWHERE = ("binary_data_size", "shared_memory_region")

#: The fields of plain requests and of their inputs.
_FIELDS, _PLAIN_INPUT = {"inputs", "id"}, {"name", "shape", "datatype", "data"}

_JSON: Header = (b"content-type", b"application/json")
_BINARY: Header = (b"content-type", b"application/octet-stream")


# --- requests ---


def split_body(body: bytes, header: bytes | None, content_type: bytes | None) -> tuple[Buffer, memoryview]:
    """The JSON, and the binary tensors after it. Without JSON the body is one bare tensor.

    Args:
        header: Inference-Header-Content-Length, the length of the JSON in bytes.

    Raises:
        InvalidRequest: the header is not a length up to that of the body, or the body is empty and should be JSON.
    """
    if header is None:
        if content_type is not None and content_type.startswith(b"application/octet-stream"):
            return b"", memoryview(body)
        if not body:
            raise InvalidRequest("The request has no body; expected a JSON object")
        return body, memoryview(b"")
    if not header.isdigit() or len(header) > 20 or int(header) > len(body):
        shown = header[:64].decode("latin-1")
        raise InvalidRequest(
            f"Header Inference-Header-Content-Length is {shown!r}; expected a number of bytes up to {len(body)}"
        )
    length = int(header)
    whole = memoryview(body)
    return (body if length == len(body) else whole[:length]), whole[length:]


def read_request(
    head: Buffer,
    tail: memoryview,
    signatures: Signatures,
    read: ReadRegion,
    deadline: Callable[[float], float],
    *,
    most: float = inf,
) -> InferCall:
    """The call in a body that `split_body` has split.

    Args:
        deadline: timeout in seconds (0 for none) -> deadline in monotonic seconds.
        most: the most values in the JSON, and the most strings after it.

    Raises:
        TakesLong: there are more.
        InvalidRequest, SignatureNotFound: the text says what is wrong.
        Unsupported: the protocol has no datatype for an input or output of this model.
    """
    # 1. A bare tensor.
    if not head:
        return _read_bare(tail, signatures, deadline(0.0))

    # 2. The JSON: parameters, which name the signature; inputs.
    document = parse(head, most)
    parameters = request_parameters(parameters_field(document))
    signature = choose_signature(signatures, parameters.signature)
    inputs = _read_inputs(document, tail, signature, read, most)

    # 3. The wanted outputs.
    check_count(list_field(document, "outputs"), signature)
    outputs = [
        wanted_output(name, parameters_field(each, f"Output {name!r}"), parameters.binary_outputs)
        for name, each in named_objects(document, "outputs")
    ]
    return make_call(
        inputs, outputs, signature, parameters, deadline_s=deadline(parameters.timeout_s), id=text_field(document, "id")
    )


#: `read_request` on the event loop: raises TakesLong for bodies of many values.
read_at_once = partial(read_request, most=MOST_VALUES)


def _read_inputs(
    document: dict[str, Any], tail: memoryview, signature: ModelSignature, read: ReadRegion, most: float
) -> dict[str, Array]:
    inputs: dict[str, Array] = {}
    for name, each in named_objects(document, "inputs"):
        if name in inputs:
            raise InvalidRequest(f"Input {name[:256]!r} is given more than once")
        place = f"Input {name[:256]!r}"
        spec = declared_input(name, text_field(each, "datatype", place), signature)
        shape = checked_shape(spec, list_field(each, "shape", place))
        raw, tail = _take_binary(each, spec, tail, read)
        inputs[name] = decode_data(each["data"], spec, shape) if raw is None else decode(raw, spec, shape, most)
    if len(tail):
        raise InvalidRequest(f"The body has {len(tail)} bytes after the last binary tensor; expected none")
    return inputs


def _take_binary(
    tensor: dict[str, Any], spec: TensorSpec, tail: memoryview, read: ReadRegion
) -> tuple[Buffer | None, memoryview]:
    """The bytes of an input, or None if its data is JSON; and the bytes of the body after them."""
    place = f"Input {spec.name!r}"
    parameters = parameters_field(tensor, place)
    has_data = tensor.get("data") is not None  # KServe's client writes null beside a tensor of no bytes
    if has_data + sum(source in parameters for source in _ELSEWHERE) != 1:
        raise InvalidRequest(f"{place} must have exactly one of 'data' and the parameters {', '.join(_ELSEWHERE)}")

    # 1. In shared memory.
    part = region_slice(parameters)
    if part is not None:
        return read(part), tail

    # 2. In the JSON.
    if "binary_data_size" not in parameters:
        return None, tail

    # 3. After the JSON.
    size = number(parameters, "binary_data_size")
    if size > len(tail):
        raise InvalidRequest(f"{place} has binary_data_size {size}, but only {len(tail)} bytes of the body are left")
    return tail[:size], tail[size:]


def _read_bare(raw: memoryview, signatures: Signatures, deadline_s: float) -> InferCall:
    signature = choose_signature(signatures)
    needed = signature.unnamed()
    if len(needed) != 1:
        raise InvalidRequest(
            f"A request without JSON is for models with one input; signature {signature.name!r} has "
            f"{len(needed)}: {', '.join(map(repr, needed))}"
        )
    ((name, spec),) = needed.items()
    wanted: Sequence[WantedOutput] = [WantedOutput(each, 0, True) for each in signature.outputs]
    return make_call({name: _bare_tensor(raw, spec)}, wanted, signature, RequestParameters(), deadline_s=deadline_s)


def _bare_tensor(raw: memoryview, spec: TensorSpec) -> Array:
    """The input of a body without JSON: one string, or numbers whose count gives the one free size of the shape.

    If more sizes are free, the batch has one row.
    """
    datatype_of(spec.dtype)
    sizes: list[int | None] = [None] if spec.shape is None else list(spec.shape)
    if spec.dtype == STRING:
        if prod(size or 1 for size in sizes) != 1:
            raise _not_bare(spec)
        return np.array([bytes(raw)], STRING).reshape([1] * len(sizes))
    if sizes.count(None) > 1 and sizes[0] is None:
        sizes[0] = 1
    if sizes.count(None) > 1:
        raise _not_bare(spec)
    row = prod(size for size in sizes if size is not None) * spec.dtype.itemsize
    free = len(raw) // row if row else 0
    return decode(raw, spec, tuple(free if size is None else size for size in sizes))


def _not_bare(spec: TensorSpec) -> InvalidRequest:
    return InvalidRequest(
        f"Input {spec.name!r} {spec}: its shape does not follow from the body; expected JSON with 'shape'"
    )


# --- several requests at once ---


class JoinedRequests(NamedTuple):
    """Several plain requests as one. A plain request has `inputs` with data in the JSON, and perhaps an `id`.

    Attributes:
        inputs: name -> [sum of rows, ...].
        rows: the number of rows of each request.
        ids: the id of each request; empty without one.
    """

    inputs: dict[str, Array]
    rows: Sequence[int]
    ids: Sequence[str]


class _NotPlain(Exception):
    """A request has to be read by itself."""


def read_joined(bodies: Sequence[bytes], signature: ModelSignature) -> JoinedRequests | None:
    """The requests in these bodies as one; None unless all are short and plain, and of equal inner shapes."""
    try:
        _expect(max(map(len, bodies)) < SHORTEST_BYTES)
        documents = [orjson.loads(body) for body in bodies]
        ids = [document.get("id", "") for document in documents]
        tensors = [{each["name"]: each for each in document["inputs"]} for document in documents]
        for document, inputs, identity in zip(documents, tensors, ids, strict=True):
            _expect(document.keys() <= _FIELDS and type(identity) is str and identity.isascii())
            _expect(inputs.keys() == signature.inputs.keys() and len(document["inputs"]) == len(inputs))
        read = {name: _read_input([each[name] for each in tensors], spec) for name, spec in signature.inputs.items()}
        rows, *others = [counts for _, counts in read.values()]
        _expect(all(counts == rows for counts in others))
    except (_NotPlain, orjson.JSONDecodeError, TypeError, KeyError, AttributeError, ValueError, ServingError):
        return None
    return JoinedRequests({name: array for name, (array, _) in read.items()}, rows, ids)


def _read_input(tensors: Sequence[dict[str, Any]], spec: TensorSpec) -> tuple[Array, list[int]]:
    """One input of all requests, and the rows of each. Raises _NotPlain; TypeError and the like for odd JSON."""
    first = checked_shape(spec, tensors[0]["shape"])
    datatype, inner, elements = datatype_of(spec.dtype), list(first[1:]), prod(first[1:])
    rows, values = list[int](), list[Any]()
    for each in tensors:
        shape, data = each["shape"], each["data"]
        _expect(each.keys() == _PLAIN_INPUT and each["datatype"] == datatype)
        _expect(type(shape) is list and set(map(type, shape)) == {int} and shape[1:] == inner)
        _expect(type(data) is list and 0 < shape[0] * elements == len(data))
        rows.append(shape[0])
        values += data
    array = tensor(values, spec.dtype)
    _expect(array.ndim == 1)
    return array.reshape(-1, *inner), rows


def _expect(plain: bool) -> None:
    if not plain:
        raise _NotPlain


# --- replies ---


@dataclass(slots=True)
class ContentReply:
    """A reply's body in pieces, with the headers that describe it."""

    pieces: Sequence[Buffer]
    headers: tuple[Header, ...] = (_JSON,)
    status: int = 200

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return sum(map(len, self.pieces))

    def head(self) -> Sequence[Header]:
        return *self.headers, (b"content-length", b"%d" % self.size)

    def head_lines(self) -> bytes:
        return header_lines(self.head())

    async def compressed(self, encoding: str | None) -> ContentReply:
        """The reply in this encoding; unchanged if the encoding is None or the reply is small."""
        if encoding is None or self.size < MIN_BYTES:
            return self
        body = await compress(b"".join(self.pieces), encoding)
        return ContentReply([body], (*self.headers, (b"content-encoding", encoding.encode())), self.status)


def document_reply(document: object, status: int = 200) -> ContentReply:
    return ContentReply([dumps(document)], status=status)


def page_reply(page: Page) -> ContentReply:
    encoded = () if page.encoding is None else ((b"content-encoding", page.encoding.encode()),)
    return ContentReply([page.body], (_JSON, *encoded))


def infer_reply(call: InferCall, response: InferenceResponse, write: WriteRegion) -> ContentReply:
    """The reply of an infer request: JSON, and the wanted binary tensors after it.

    Raises:
        InvalidRequest: an output cannot be classified, or does not fit its shared memory.
    """
    outputs: list[dict[str, Any]] = []
    tail: list[Buffer] = []
    for wanted, array in call.results(response):
        document, binary = _output(wanted, array, write)
        outputs.append(document)
        tail += binary
    head = {"model_name": response.model, "model_version": str(response.version), "outputs": outputs}
    if call.id:
        head["id"] = call.id
    text = dumps_in_slices(head) if takes_long(response.outputs) else dumps(head)
    if not tail:
        return ContentReply([text])
    return ContentReply([text, *tail], (_BINARY, (b"inference-header-content-length", str(len(text)).encode())))


def _output(wanted: WantedOutput, array: Array, write: WriteRegion) -> tuple[dict[str, Any], list[Buffer]]:
    """The document of one output, and its bytes if they go after the JSON."""
    document: dict[str, Any] = {"name": wanted.name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
    if wanted.region is not None:
        # The document has no parameters: Triton's C++ client would take any for a binary tensor's.
        write(wanted.region, encode(array))
        return document, []
    if wanted.binary:
        content = encode(array)
        document["parameters"] = {"binary_data_size": len(content)}
        return document, [content]
    document["data"] = encode_data(array)
    return document, []


def write_each(
    model: str, version: int, outputs: Mapping[str, Array], rows: Sequence[int], ids: Sequence[str]
) -> list[bytes] | None:
    """The bodies that `infer_reply` writes for several plain requests.

    None where `texts_of_requests` cannot cut an output.

    Args:
        outputs: the outputs of all requests together, name -> [sum of rows, ...].
        rows, ids: the rows and the id of each request.
    """
    written = list[list[bytes]]()
    for name, array in outputs.items():
        # 1. The text of each request's numbers.
        texts = texts_of_requests(array, rows, flat=True)
        if texts is None:
            return None

        # 2. The document of this output, for each request.
        begin = dumps({"name": name, "datatype": datatype_of(array.dtype)})[:-1] + b',"shape":['
        inner = b"".join([b",%d" % size for size in array.shape[1:]]) + b'],"data":['
        written.append([b"%b%d%b%b]}" % (begin, count, inner, text) for count, text in zip(rows, texts, strict=True)])

    # 3. The whole documents.
    before = dumps({"model_name": model, "model_version": str(version)})[:-1] + b',"outputs":['
    after = [b'],"id":%b}' % dumps(each) if each else b"]}" for each in ids]
    return [before + b",".join(parts) + end for parts, end in zip(zip(*written, strict=True), after, strict=True)]
