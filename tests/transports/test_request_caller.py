from __future__ import annotations

import pytest

from app.transports.request_caller import CallerRule


def test_callers_are_not_told_apart_unless_they_are_to_be() -> None:
    assert CallerRule.of("") is None


@pytest.mark.parametrize(
    ("setting", "headers", "caller"),
    [
        ("address", {b"x-api-key": b"k"}, "10.0.0.1"),
        ("header:X-Api-Key", {b"x-api-key": b"k"}, "x-api-key: k"),
        ("header:X-Api-Key", {b"x-api-key": b"k" * 999}, "x-api-key: " + "k" * 256),
        ("header:X-Api-Key", {b"x-api-key": b"\xff"}, "x-api-key: \xff"),
        ("header:X-Api-Key", {}, "10.0.0.1"),
    ],
)
def test_a_caller_is_an_address_or_what_a_header_says(setting: str, headers: dict[bytes, bytes], caller: str) -> None:
    rule = CallerRule.of(setting)
    assert rule is not None
    assert rule.caller(headers.get, "10.0.0.1") == caller
