"""Replies to infer requests over REST: JSON, with binary tensors behind it where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.codecs.json.writing import dumps
from app.core.inference import Array, Buffer, InferenceResponse
from app.protocols.open_inference.binary_tensors import encode
from app.protocols.open_inference.datatypes import datatype_of
from app.protocols.open_inference.infer_call import Call, WantedOutput
from app.protocols.open_inference.json_documents import encode_data
from app.protocols.open_inference.shared_memory import RegionSlice
from app.transports.http.asgi import Header
from app.transports.http.compression import MIN_BYTES, compress
from app.transports.http.replies import header_lines

#: Puts bytes into a part of shared memory.
Write = Callable[[RegionSlice, Buffer], None]

_JSON: Header = (b"content-type", b"application/json")
_BINARY: Header = (b"content-type", b"application/octet-stream")


@dataclass(slots=True)
class ContentReply:
    """A body in pieces, with headers that say what it is."""

    pieces: Sequence[Buffer]
    headers: tuple[Header, ...] = (_JSON,)
    status: int = 200

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    def head(self) -> Sequence[Header]:
        return *self.headers, (b"content-length", b"%d" % self.size)

    def head_lines(self) -> bytes:
        return header_lines(self.head())

    async def compressed(self, encoding: str | None) -> ContentReply:
        """The same reply in this encoding; a small one stays as it is."""
        if encoding is None or self.size < MIN_BYTES:
            return self
        body = await compress(b"".join(self.pieces), encoding)
        return ContentReply([body], (*self.headers, (b"content-encoding", encoding.encode())), self.status)


def document_reply(document: object, status: int = 200) -> ContentReply:
    return ContentReply([dumps(document)], status=status)


def infer_reply(call: Call, response: InferenceResponse, write: Write) -> ContentReply:
    """Raises InvalidRequest where an output cannot be classified or does not fit its shared memory."""
    outputs: list[dict[str, Any]] = []
    tail: list[Buffer] = []
    for wanted, array in call.results(response):
        document, binary = _output(wanted, array, write)
        outputs.append(document)
        tail += binary
    head = {"model_name": response.model, "model_version": str(response.version), "outputs": outputs}
    if call.id:
        head["id"] = call.id
    text = dumps(head)
    if not tail:
        return ContentReply([text])
    return ContentReply([text, *tail], (_BINARY, (b"inference-header-content-length", str(len(text)).encode())))


def _output(wanted: WantedOutput, array: Array, write: Write) -> tuple[dict[str, Any], list[Buffer]]:
    """One output's document, and its bytes where they go behind the JSON."""
    document: dict[str, Any] = {"name": wanted.name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
    if wanted.region is not None:
        # The document says nothing of it: Triton's C++ client takes any parameters for those of a binary tensor.
        write(wanted.region, encode(array))
        return document, []
    if wanted.binary:
        content = encode(array)
        document["parameters"] = {"binary_data_size": len(content)}
        return document, [content]
    document["data"] = encode_data(array)
    return document, []
