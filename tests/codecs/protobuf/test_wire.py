"""What is written by hand reads as messages do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import check_fields, field_start, map_entry_start
from app.core.errors import InvalidRequest

Request = message_class("tensorflow.serving.PredictRequest")
TensorProto = message_class("tensorflow.TensorProto")


@given(st.dictionaries(st.text(max_size=200), st.binary(max_size=300), max_size=5))
def test_a_map_of_messages(tensors: dict[str, bytes]) -> None:
    expected = Request()
    parts: list[bytes] = []
    for name, content in tensors.items():
        expected.inputs[name].tensor_content = content
        value = TensorProto(tensor_content=content).SerializeToString()
        parts += [map_entry_start(2, name, len(value)), value]
    assert Request.FromString(b"".join(parts)) == expected


@given(st.binary(max_size=20_000))
def test_a_field_of_any_length(content: bytes) -> None:
    message = TensorProto.FromString(field_start(4, len(content)) + content)
    assert message.tensor_content == content


def test_field_numbers_beyond_15_take_two_bytes() -> None:
    assert TensorProto.FromString(field_start(18, 2) + b"ab").float8_val == b"ab"


FIELDS = [b"\x12\0", b"\x08\1", b"\x09" + bytes(8), b"\x0d" + bytes(4)]


@pytest.mark.parametrize("field", FIELDS)
def test_a_message_of_very_many_fields_is_rejected_before_it_is_parsed(field: bytes) -> None:
    """An empty input takes two bytes on the wire and 180 in memory."""
    large = b"\x1a\x80\x80\1" + bytes(16384)
    check_fields(large + field * 1200)
    check_fields(field * 1000)
    with pytest.raises(InvalidRequest, match=r"more than 1... inputs, outputs or other fields"):
        check_fields(large + field * 2500)


@given(st.binary(max_size=100))
def test_bytes_that_are_no_message_are_left_to_the_parser(content: bytes) -> None:
    check_fields(content + b"\x80" * 16384)
    check_fields(content + b"\x17" * 16384)
