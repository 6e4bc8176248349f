"""Elements of MessagePack are counted as msgpack reads them."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.msgpack_elements import has_many_elements

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=300),
    lambda each: st.lists(each, max_size=20) | st.dictionaries(st.text(max_size=40), each, max_size=20),
    max_leaves=40,
)


def elements(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + elements(each) for each in value.values())
    return 1 + (sum(map(elements, value)) if isinstance(value, list) else 0)


@given(values)
def test_as_many_are_counted_as_there_are(value: Any) -> None:
    packed, count = msgpack.packb(value), elements(value)
    assert not has_many_elements(packed, count)
    assert has_many_elements(packed, count - 1)


@pytest.mark.parametrize("value", [msgpack.ExtType(5, b"x" * size) for size in (1, 2, 4, 8, 16, 3, 300, 70_000)])
def test_an_extension_is_one_element(value: Any) -> None:
    packed = msgpack.packb([value, "x" * 70_000, b"x" * 300, 1.5])
    assert not has_many_elements(packed, 5)
    assert has_many_elements(packed, 4)


@given(st.binary(max_size=60))
def test_what_is_no_document_is_counted_to_its_end(content: bytes) -> None:
    assert not has_many_elements(content, 60)
