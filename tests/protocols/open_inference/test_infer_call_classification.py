from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from app.core.errors import InvalidRequest
from app.protocols.open_inference.infer_call import classify


@pytest.mark.parametrize(
    ("array", "count", "batched", "expected"),
    [
        (np.array([[0.1, 0.7, 0.2], [3, 2, 1]], np.float32), 2, True,
         [[b"0.700000:1", b"0.200000:2"], [b"3.000000:0", b"2.000000:1"]]),
        (np.array([1, 5, 5, 2], np.int32), 3, False, [b"5:1", b"5:2", b"2:3"]),
        (np.array([[1, 2], [4, 3]], np.uint64), 9, False, [b"4:2", b"3:3", b"2:1", b"1:0"]),
        (np.array([[2**64 - 1, 2**64 - 2]], np.uint64), 1, True, [[b"18446744073709551615:0"]]),
        (np.array([4, 5], np.int8), 2, True, [[b"4:0"], [b"5:0"]]),
        (np.array(7, np.int8), 2, False, [b"7:0"]),
        (np.zeros((2, 1, 2), ml_dtypes.bfloat16), 1, True, [[b"0.000000:0"], [b"0.000000:0"]]),
        (np.zeros((0, 3), np.float32), 2, True, []),
        (np.zeros((2, 0), np.float32), 2, True, [[], []]),
    ],
)  # fmt: skip
def test_the_largest_first(array, count, batched, expected):
    assert classify("y", array, count, batched).tolist() == expected


def test_labels_follow_the_index():
    array = np.array([[0.1, 0.7, 0.2]], np.float32)
    assert classify("y", array, 2, True, ("cat", "dog", "éléphant: grey")).tolist() == [
        [b"0.700000:1:dog", "0.200000:2:éléphant: grey".encode()]
    ]


@pytest.mark.parametrize("array", [np.array([b"a"], object), np.array([True]), np.array([1j])])
def test_what_has_no_order_is_rejected(array):
    with pytest.raises(InvalidRequest, match=r"Output 'y' has dtype [a-z0-9]+; expected numbers"):
        classify("y", array, 1, True)
