"""Documents of the protocol as messages of gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import ParseDict

from app.codecs.protobuf.messages import message_class


def fill_message(name: str, document: Mapping[str, Any]) -> Any:
    """The message of this name with the fields of a REST document. Raises ParseError for a field that it lacks."""
    return ParseDict(dict(document), message_class(name)(), ignore_unknown_fields=False)
