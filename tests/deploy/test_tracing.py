"""What coverage traces: what is marked is left out, also in processes of xdist, and what comes after it is not."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def traced() -> bool:
    return sys.gettrace() is not None


@pytest.mark.not_traced
def test_a_marked_test_is_not_traced_nor_are_its_fixtures(traced: bool) -> None:
    assert not traced
    assert sys.gettrace() is None


def test_tracing_goes_on_after_it(traced: bool, pytestconfig: pytest.Config) -> None:
    assert traced == bool(pytestconfig.getoption("cov_source"))
