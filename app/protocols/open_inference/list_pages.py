"""Lists of models as pages: their entries are written one by one, in the form of REST or of gRPC."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from app.codecs.json.writing import dumps
from app.protocols.open_inference.grpc_documents import fill_message
from app.transports.http.compression import compressed_page
from app.transports.rendered_pages import Page, Pieces

#: The forms of a list.
IN_JSON, IN_PROTOBUF = "json", "protobuf"

_JSON = "application/json"


class ListForm(Protocol):
    """How a list is written."""

    def entry(self, document: Mapping[str, Any]) -> bytes: ...

    def page(self, entries: Sequence[bytes], encoding: str | None) -> Pieces[Page]: ...


class _JsonList(NamedTuple):
    """`before` and `after` stand around the entries."""

    before: bytes
    after: bytes

    def entry(self, document: Mapping[str, Any]) -> bytes:
        return dumps(document)

    def page(self, entries: Sequence[bytes], encoding: str | None) -> Pieces[Page]:
        return compressed_page(b"%b%b%b" % (self.before, b",".join(entries), self.after), _JSON, encoding)


class _MessageList(NamedTuple):
    """A message whose one field has the entries: messages with some entries each, one behind the other, are one."""

    message: str
    field: str

    def entry(self, document: Mapping[str, Any]) -> bytes:
        content: bytes = fill_message(self.message, {self.field: [document]}).SerializeToString()
        return content

    def page(self, entries: Sequence[bytes], encoding: str | None) -> Generator[None, None, Page]:  # noqa: ARG002
        """gRPC compresses by itself, where it does."""
        yield
        return Page(b"".join(entries), "application/grpc")


STATISTICS: Mapping[str, ListForm] = {
    IN_JSON: _JsonList(b'{"model_stats":[', b"]}"),
    IN_PROTOBUF: _MessageList("inference.ModelStatisticsResponse", "model_stats"),
}

INDEX: Mapping[str, ListForm] = {
    IN_JSON: _JsonList(b"[", b"]"),
    IN_PROTOBUF: _MessageList("inference.RepositoryIndexResponse", "models"),
}
