"""Tensors of every type for hypothesis."""

from __future__ import annotations

from math import prod

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
from ferry_client.arrays import Array
from hypothesis import strategies as st

from tests.client.fakes import strings

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)

_NUMBERS = ["?", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"]


@st.composite
def _bfloat16(draw: st.DrawFn) -> Array:
    bits: Array = draw(hnp.arrays(np.uint16, SHAPES))
    return bits.view(ml_dtypes.bfloat16)


@st.composite
def _strings(draw: st.DrawFn) -> Array:
    shape = draw(SHAPES)
    size = prod(shape)
    return strings(draw(st.lists(st.binary(max_size=9), min_size=size, max_size=size)), shape)


#: Every type that the Open Inference Protocol has; scalars, empty and non-finite ones among them.
TENSORS = st.one_of(hnp.arrays(st.sampled_from([np.dtype(kind) for kind in _NUMBERS]), SHAPES), _bfloat16(), _strings())
