import numpy as np
import pytest

from app.core.inference import STRING, ModelSignature, TensorSpec
from app.loading.rows.probe_rows import KINDS, probe_values

SPECS = {
    "tokens": (np.int32, (None, None)),
    "bytes": (np.uint8, (None, None)),
    "length": (np.int64, (None,)),
    "mask": (np.int64, (None, None)),
    "keep": (bool, (None, None)),
    "fractions": (np.float32, (None, None)),
    "words": (STRING, (None, None)),
}
SIGNATURE = ModelSignature(
    "f", {name: TensorSpec(name, np.dtype(dtype), shape) for name, (dtype, shape) in SPECS.items()}, {}
)
SHAPES = {name: (50,) * (len(shape) - 1) for name, (_, shape) in SPECS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_values_fit_the_signature(kind: str) -> None:
    values = probe_values(SIGNATURE, SHAPES, kind, np.random.default_rng(1))
    for name, spec in SIGNATURE.inputs.items():
        assert (values[name].dtype, values[name].shape) == (spec.dtype, (1, *SHAPES[name]))


def test_kinds_differ_where_it_matters() -> None:
    of = {kind: probe_values(SIGNATURE, SHAPES, kind, np.random.default_rng(1)) for kind in KINDS}
    ranges = {kind: (values["tokens"].min(), values["tokens"].max()) for kind, values in of.items()}
    assert ranges["ones"] == (1, 1)
    assert ranges["small"] == (1, 3)
    assert ranges["negative"] == (-3, -1)
    assert ranges["large"][1] > 50
    assert of["negative"]["fractions"].mean() < -2
    assert all(0 < values["bytes"].min() <= values["bytes"].max() < 100 for values in of.values())
    assert set(of["small"]["words"].ravel()) == {b"1", b"2", b"3"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_length_stays_small_and_a_mask_a_mask(kind: str) -> None:
    values = probe_values(SIGNATURE, SHAPES, kind, np.random.default_rng(1))
    assert values["length"][0] in {1, 2, 3}
    for name in ("mask", "keep"):
        assert set(values[name].ravel()) == ({1} if kind == "ones" else {0, 1})
        assert values[name][0, 0]
