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


def test_a_container_has_no_more_cores_than_its_quota(tmp_path: Path) -> None:
    all_cores = usable_cores(tmp_path / "none")
    quota = tmp_path / "cpu.max"
    for text, cores in (("50000 100000\n", 1), ("max 100000\n", all_cores), ("99900000 100000\n", all_cores)):
        quota.write_text(text)
        assert usable_cores(quota) == cores
