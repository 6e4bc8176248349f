from __future__ import annotations

from bench import revisions
from bench.revisions import slower


def test_a_median_below_the_bound_is_slower() -> None:
    assert not slower({"mlp": [0.9, 0.97, 2.0], "digits": [1.0]})
    assert slower({"mlp": [0.9, 0.96, 2.0], "digits": [1.0]})


def test_each_workload_has_a_way() -> None:
    assert {workload.wire for workload in revisions._COMPARED.values()} == revisions._WAYS.keys()
