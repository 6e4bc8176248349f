import os
from pathlib import Path

import pytest

from app.runtimes.parallelism import share_cores, usable_cores


@pytest.mark.parametrize(
    ("cores", "calls", "threads"), [(1, 1, 1), (2, 2, 1), (4, 2, 2), (8, 2, 4), (16, 4, 4), (30, 7, 4)]
)
def test_few_threads_each(cores: int, calls: int, threads: int) -> None:
    assert share_cores(cores) == (calls, threads)


@pytest.mark.parametrize(
    ("fixed", "shared"),
    [
        ({"calls": 1}, (1, 8)),
        ({"calls": 3}, (3, 2)),
        ({"calls": 16}, (16, 1)),
        ({"threads": 8}, (1, 8)),
        ({"threads": 4}, (2, 4)),
        ({"threads": 1}, (2, 1)),
        ({"threads": 99}, (1, 99)),
        ({"calls": 3, "threads": 5}, (3, 5)),
    ],
)
def test_what_is_fixed_stays_so(fixed: dict[str, int], shared: tuple[int, int]) -> None:
    assert share_cores(8, **fixed) == shared


ALL_CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "cores"), [("50000 100000", 1), ("max 100000", ALL_CORES), ("99900000 100000", ALL_CORES)]
)
def test_a_container_has_no_more_cores_than_its_quota(quota: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("50000", 1), ("-1", ALL_CORES), ("99900000", ALL_CORES)])
def test_nor_with_cgroup_v1(quota: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path) == cores


def test_without_a_quota_all_cores_are_used(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == ALL_CORES
