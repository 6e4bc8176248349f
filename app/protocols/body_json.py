"""Predict bodies as TensorFlow Serving's JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.inference import InferenceResponse
from app.protocols.body_form import BodyForm, PredictBody, ReplyForm
from app.protocols.json_text import parse
from app.protocols.tensorflow_predict import check_outputs_writable, decode_predict, encode_predict, named_signature


def read(body: bytes, max_bytes: int) -> PredictBody:  # noqa: ARG001 - read_body saw to it
    return document_body(parse(body))


def document_body(document: Mapping[str, Any]) -> PredictBody:
    """Of a document that has JSON's form, wherever it comes from. Raises InvalidRequest."""
    return PredictBody(
        lambda signature: decode_predict(document, signature)[0],
        named_signature(document),
        by_row="instances" in document,
    )


def write(response: InferenceResponse, by_row: bool) -> bytes:
    return encode_predict(response.outputs, by_row)


#: TensorFlow Serving reads JSON whatever the type says, and its clients send what curl's --data makes of it.
FORM = BodyForm(
    ("application/json",),
    read,
    ReplyForm(check_outputs_writable, write),
    also_read=("text/plain", "text/json", "application/x-www-form-urlencoded"),
)
