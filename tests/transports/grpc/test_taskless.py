"""How the replies to joined calls are cut."""

from __future__ import annotations

import pytest

from app.transports.grpc.taskless import messages_of


@pytest.mark.parametrize(
    ("outputs", "replies"),
    [
        ([b"abcd"], [b"1ab", b"1cd"]),
        ([b"abcd", b"ef"], [b"1ab2e", b"1cd2f"]),
        ([b""], [b"1", b"1"]),  # rows without numbers are rows
        ([b"abcd", b""], [b"1ab2", b"1cd2"]),
    ],
)
def test_each_call_gets_its_part_of_each_output(outputs: list[bytes], replies: list[bytes]) -> None:
    starts = [b"1", b"2"][: len(outputs)]
    assert messages_of(2, starts, [memoryview(each) for each in outputs]) == replies
