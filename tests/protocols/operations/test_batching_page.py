"""Whatever is sent as changes; the pages as a client sees them are in tests/live/test_batching_pages.py."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.policy import BatchingOptions
from app.core.errors import InvalidRequest
from app.protocols.operations.batching_page import BATCHING_PATH, read_changes

_NAMES = st.sampled_from([*(each.name for each in fields(BatchingOptions)), "max_delay", ""])
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.one_of(st.dictionaries(_NAMES, _VALUES), _VALUES).map(lambda value: json.dumps(value).encode()) | st.binary())
def test_any_body_is_read_or_rejected(body: bytes) -> None:
    changes, rejection = {}, ""
    try:
        changes = read_changes(body)
    except InvalidRequest as error:
        rejection = str(error)
    assert bool(changes) != bool(rejection)
    assert len(rejection) < 400
    assert BatchingOptions().changed(changes).as_dict().items() >= changes.items()


@pytest.mark.parametrize("value", ["[" * 900 + "]" * 900, '"' + "x" * 9999 + '"', "9" * 400])
def test_long_and_deep_values_are_quoted_in_few_bytes(value: str) -> None:
    for name in ("weight", "max_batch_size", "target_p99_ms", "x" * 9999):
        with pytest.raises(InvalidRequest) as caught:
            read_changes(f'{{"{name}": {value}}}'.encode())
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/models/m/batching", True),
        ("/v1/models/a b/batching", True),
        ("/v1/models/batching", False),
        ("/v1/models/m:predict", False),
        ("/v1/models/m/versions/1/batching", False),
        ("/v1/models/m/batching/", False),
    ],
)
def test_paths_beside_tensorflow_servings(path: str, found: bool) -> None:
    assert bool(BATCHING_PATH.fullmatch(path)) == found
