from __future__ import annotations

import pytest

from app.core.errors import InvalidRequest
from app.protocols.open_inference.parameters import RequestParameters, request_parameters


def test_without_parameters_all_values_are_defaults():
    assert request_parameters({}) == RequestParameters("", 0.0, False, False)


def test_known_parameters_are_read():
    given = {
        "signature_name": "s", "timeout": 2_500_000, "binary_data_output": True,
        "triton_enable_empty_final_response": True, "priority": 3,
    }  # fmt: skip
    assert request_parameters(given) == RequestParameters("s", 2.5, True, True, 3)


def test_unknown_and_empty_parameters_are_accepted():
    given = {"anything": [1], "sequence_id": 0, "sequence_start": False, "sequence_end": False}
    assert request_parameters(given) == RequestParameters()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("signature_name", 1),
        *[("timeout", value) for value in (-1, 1.5, "1", True, None, 2**64)],
        *[("priority", value) for value in (-1, "high", False)],
        *[("binary_data_output", value) for value in (1, "true", None)],
        ("triton_enable_empty_final_response", "yes"),
        *[("sequence_id", value) for value in (1, "a")],
        ("sequence_start", True),
        ("sequence_end", True),
    ],
)
def test_what_does_not_fit_is_named(name, value):
    with pytest.raises(InvalidRequest, match=f"Parameter '{name}'"):
        request_parameters({name: value})
