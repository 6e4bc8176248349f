from __future__ import annotations

import pytest

from app.codecs.body_format import PredictBody
from app.codecs.predict_query import apply_query
from app.core.errors import InvalidRequest


def body(signature: str = "", outputs: tuple[str, ...] = ()) -> PredictBody:
    return PredictBody(lambda _: {}, signature, outputs)


@pytest.mark.parametrize(
    ("query", "given", "signature", "outputs"),
    [
        (b"signature_name=a&output=x&output=y", body(), "a", ("x", "y")),
        (b"signature_name=a%20b&output=%C3%A9", body(), "a b", ("é",)),
        (b"signature_name=a", body("a", ("x",)), "a", ("x",)),
        (b"output=x&output=y", body("a", ("y", "x")), "a", ("y", "x")),
        (b"key=secret&alt=json", body("a"), "a", ()),
        (b"signature_name=&output=", body("a"), "a", ()),
        (b"&&=", body(), "", ()),
    ],
)
def test_the_query_fills_in_what_the_body_lacks(
    query: bytes, given: PredictBody, signature: str, outputs: tuple[str, ...]
) -> None:
    apply_query(query, given)
    assert (given.signature_name, given.outputs) == (signature, outputs)


@pytest.mark.parametrize(
    ("query", "given", "text"),
    [
        (b"signature_name=a", body("b"), "The request names the signatures 'a', 'b'"),
        (b"signature_name=a&signature_name=a", body(), "The request names the signatures 'a', 'a'"),
        (b"output=x", body(outputs=("y",)), "The query asks for outputs 'x', the body for 'y'"),
        (b"output=%ff", body(), "The query of the URL is not valid"),
        (b"a=1&" * 1001, body(), "The query of the URL is not valid"),
    ],
)
def test_a_query_that_contradicts_the_body_is_rejected(query: bytes, given: PredictBody, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        apply_query(query, given)
