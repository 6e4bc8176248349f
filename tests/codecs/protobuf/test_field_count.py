"""Fields are counted through all messages, and what is long but simple is told apart from what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.codecs.protobuf.field_count import has_many_fields
from app.codecs.protobuf.messages import message_class

Infer = message_class("inference.ModelInferRequest")


def infer(**tensor: Any) -> bytes:
    message = Infer(model_name="m", inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 2], **tensor}])
    content: bytes = message.SerializeToString()
    return content


@pytest.mark.parametrize(
    ("content", "many"),
    [
        (b"", False),
        (infer(), False),
        (infer(contents={"fp32_contents": np.zeros(10_000)}), False),  # packed: one field
        (infer(contents={"bytes_contents": [b"x" * 10_000]}), False),
        (infer(contents={"bytes_contents": [b""] * 10_000}), True),
        (infer(shape=[1] * 10_000), False),
        (infer(parameters={str(number): {"bool_param": True} for number in range(50)}), True),
        (b"*\0" * 101, True),
        (b"*\0" * 100, False),
        (b"\x2b" * 10, True),  # groups
        (b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", False),  # longer than the message, which the parser finds
        (b"\xff" * 10, True),
        (b"\x08", False),
    ],
)
def test_fields_are_counted(content: bytes, many: bool) -> None:
    assert has_many_fields(content, Infer.DESCRIPTOR, 100) is many
