"""The query of a predict URL: signature and outputs, for body formats without fields for them."""

from __future__ import annotations

from urllib.parse import parse_qs

from app.codecs.body_format import PredictBody
from app.core.errors import InvalidRequest

#: Longer queries are rejected. Chosen.
_MAX_QUERY_FIELDS = 1000


def apply_query(query: bytes, body: PredictBody) -> None:
    """Add `?signature_name=` and `&output=` to a body. Other names are ignored.

    Raises:
        InvalidRequest: query and body disagree.
    """
    try:
        fields = parse_qs(query.decode("latin-1"), errors="strict", max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError as error:
        raise InvalidRequest(f"The query of the URL is not valid: {error}") from error
    names = fields.get("signature_name", [])
    if len(names) > 1 or (names and body.signature_name and names[0] != body.signature_name):
        raise InvalidRequest(
            f"The request names the signatures {_quoted([*names, body.signature_name])}; expected one at most"
        )
    outputs = tuple(fields.get("output", ()))
    if outputs and body.outputs and set(outputs) != set(body.outputs):
        raise InvalidRequest(f"The query asks for outputs {_quoted(outputs)}, the body for {_quoted(body.outputs)}")
    body.signature_name = names[0] if names else body.signature_name
    body.outputs = body.outputs or outputs


def _quoted(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(repr(name[:64]) for name in names if name)
