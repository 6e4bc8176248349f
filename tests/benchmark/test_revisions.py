from __future__ import annotations

import argparse

import pytest

from bench import revisions
from bench.revisions import slower, workloads


def test_a_median_below_the_bound_is_slower() -> None:
    assert not slower({"mlp": [0.9, 0.97, 2.0], "digits": [1.0]})
    assert slower({"mlp": [0.9, 0.96, 2.0], "digits": [1.0]})


def test_each_workload_has_a_way() -> None:
    assert {workload.wire for workload in revisions._COMPARED.values()} == revisions._WAYS.keys()


def test_workloads_are_chosen_by_name() -> None:
    assert [workload.name for workload in workloads("digits,mlp-grpc")] == ["digits", "mlp-grpc"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"mixed: there are mlp, .*transformer-mixed"):
        workloads("digits,mixed")
