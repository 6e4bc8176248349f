"""What is written by hand reads as messages do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.wire import field_start, map_entry

Request = message_class("tensorflow.serving.PredictRequest")
TensorProto = message_class("tensorflow.TensorProto")


@given(st.dictionaries(st.text(max_size=200), st.binary(max_size=300), max_size=5))
def test_a_map_of_messages(tensors: dict[str, bytes]) -> None:
    expected = Request()
    parts: list[bytes | memoryview] = []
    for name, content in tensors.items():
        expected.inputs[name].tensor_content = content
        value = TensorProto(tensor_content=content).SerializeToString()
        parts += map_entry(2, name, [value[:1], memoryview(value[1:])])
    assert Request.FromString(b"".join(parts)) == expected


@given(st.binary(max_size=20_000))
def test_a_field_of_any_length(content: bytes) -> None:
    message = TensorProto.FromString(field_start(4, len(content)) + content)
    assert message.tensor_content == content


def test_field_numbers_beyond_15_take_two_bytes() -> None:
    assert TensorProto.FromString(field_start(18, 2) + b"ab").float8_val == b"ab"
