"""Protocol buffers in the text format, as people write them into configuration files."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest


def parse_text(text: str, name: str) -> Any:
    """The message of this full name in a text.

    Raises InvalidRequest with line and column; the error text is TensorFlow Serving's.
    """
    try:
        return text_format.Parse(text, message_class(name)())
    except text_format.ParseError as error:
        raise InvalidRequest(f"Error parsing text-format {name}: {' '.join(str(error).split())}") from None
