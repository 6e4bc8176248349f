"""Predict bodies as TensorFlow Serving's JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app.codecs.body_format import BodyForm, PredictBody, ReplyForm
from app.codecs.json.long_arrays import SHORTEST_BYTES
from app.codecs.json.predict_documents import check_outputs_writable, decode_predict, encode_predict, named_signature
from app.codecs.json.tensors import rows
from app.codecs.json.text import parse
from app.core.errors import ServingError
from app.core.inference import Array, InferenceResponse, ModelSignature


def read(body: bytes, max_bytes: int) -> PredictBody:  # noqa: ARG001 - read_body saw to it
    return document_body(parse(body))


def document_body(document: Mapping[str, Any]) -> PredictBody:
    """Of a document that has JSON's form, wherever it comes from. Raises InvalidRequest."""
    return PredictBody(
        lambda signature: decode_predict(document, signature)[0],
        named_signature(document),
        by_row="instances" in document,
    )


def rows_together(bodies: Sequence[bytes], signature: ModelSignature) -> tuple[dict[str, Array], list[int]] | None:
    """The rows of all bodies behind one another, and how many each has.

    None unless each body is short, has `instances` and nothing else, and all of them fit into one array.
    """
    if len(signature.inputs) != 1:
        return None
    ((name, spec),) = signature.inputs.items()
    values: list[Any] = []
    counts: list[int] = []
    try:
        for body in bodies:
            document = orjson.loads(body)
            instances = document["instances"]
            if len(document) != 1 or type(instances) is not list or not instances or len(body) >= SHORTEST_BYTES:
                return None
            values += instances
            counts.append(len(instances))
        return {name: rows(values, spec.dtype)}, counts
    except (orjson.JSONDecodeError, TypeError, KeyError, ServingError):
        return None


def write(response: InferenceResponse, by_row: bool) -> bytes:
    return encode_predict(response.outputs, by_row)


#: TensorFlow Serving reads JSON whatever the type says, and its clients send what curl's --data makes of it.
FORM = BodyForm(
    ("application/json",),
    read,
    ReplyForm(check_outputs_writable, write),
    also_read=("text/plain", "text/json", "application/x-www-form-urlencoded"),
)
