from __future__ import annotations

import pytest

from app.core.errors import InvalidRequest
from app.transports.request_priority import read_priority


@pytest.mark.parametrize(("value", "priority"), [("0", 0), ("1", 1), ("007", 7), (str(2**64 - 1), 2**64 - 1)])
def test_whole_numbers(value: str, priority: int) -> None:
    assert read_priority(value) == priority


@pytest.mark.parametrize(
    "value", ["", "high", "-1", "+1", "1.0", "1e3", "1_0", "0x1", "²", "٣", "1 2", str(2**64), "9" * 5000]
)
def test_nonsense(value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_priority(value)
    text = "X-Request-Priority must be a whole number from 0, 1 being the highest, not "
    assert str(caught.value) == text + repr(value[:64])
