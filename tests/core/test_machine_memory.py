import os
from math import inf
from pathlib import Path

import numpy as np
import pytest

from app.core.machine_memory import (
    PeakMemory,
    available_bytes,
    container_left_bytes,
    data_bytes,
    limit_bytes,
    loading_bytes,
    resident_bytes,
)

MB = 2**20


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_nothing_is_known_of_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) == inf


def test_this_machine_says() -> None:
    assert 0 < available_bytes() < inf


def test_the_container_counts_if_it_has_less_and_its_cache_of_files_can_be_taken(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert available_bytes(tmp_path) == 8000 * 1024
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", "4000000\n")
    write(tmp_path, "sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 500000\n")
    assert available_bytes(tmp_path) == 8000 * 1024
    write(tmp_path, "sys/fs/cgroup/memory.max", "5000000\n")
    assert available_bytes(tmp_path) == 1_500_000
    write(tmp_path, "sys/fs/cgroup/memory.max", "3000000\n")
    assert available_bytes(tmp_path) == 0


def test_and_with_cgroup_v1(tmp_path: Path) -> None:
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", "4000000\n")
    assert available_bytes(tmp_path) == 1_000_000


def test_what_a_container_leaves_is_known_where_it_has_a_limit_below_the_machines(tmp_path: Path) -> None:
    assert container_left_bytes(tmp_path) == inf
    write(tmp_path, "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    1000 kB\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", "4000000\n")
    assert container_left_bytes(tmp_path) == inf
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n")
    assert container_left_bytes(tmp_path) == 1_000_000
    write(tmp_path, "sys/fs/cgroup/memory.max", "4500000\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", "4000000\n")
    assert container_left_bytes(tmp_path) == 500_000


def test_the_memory_of_a_process_is_known_by_its_number() -> None:
    assert 0 < resident_bytes(os.getpid()) < inf
    assert data_bytes(os.getpid()) > 0


def test_a_step_of_a_load_may_take_a_quarter_of_what_is_left_or_what_a_setting_says() -> None:
    assert loading_bytes() == pytest.approx(available_bytes() / 4, rel=0.2)


def test_the_peak_of_a_block_is_what_was_taken_in_it_also_if_it_was_given_back() -> None:
    assert np.ones(150 * MB, np.uint8).any()  # an earlier peak does not count
    with PeakMemory() as peak:
        assert np.ones(100 * MB, np.uint8).any()
    assert 95 * MB < peak.bytes < 140 * MB
    with PeakMemory() as peak:
        pass
    assert peak.bytes < 5 * MB


def test_blocks_that_overlap_do_not_forget_each_others_peaks() -> None:
    with PeakMemory() as whole:
        assert np.ones(100 * MB, np.uint8).any()
        with PeakMemory() as part:
            assert np.ones(20 * MB, np.uint8).any()
    assert part.bytes < 60 * MB
    assert whole.bytes > 95 * MB
    assert resident_bytes() > 0


def test_the_group_of_the_process_and_those_above_it_limit_it(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert limit_bytes(tmp_path) == 9000 * 1024
    write(tmp_path, "proc/self/cgroup", "0::/pod/container\n")
    write(tmp_path, "sys/fs/cgroup/pod/memory.max", "3000000\n")
    write(tmp_path, "sys/fs/cgroup/pod/memory.current", "1000000\n")
    write(tmp_path, "sys/fs/cgroup/pod/container/memory.max", "max\n")
    write(tmp_path, "sys/fs/cgroup/pod/container/memory.current", "1000000\n")
    assert limit_bytes(tmp_path) == 3_000_000
    assert available_bytes(tmp_path) == 2_000_000
    write(tmp_path, "sys/fs/cgroup/pod/container/memory.max", "1500000\n")
    write(tmp_path, "sys/fs/cgroup/pod/container/memory.stat", "active_file 200000\n")
    assert available_bytes(tmp_path) == 600_000


def test_a_group_of_version_1_is_found_although_a_container_sees_only_its_own(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "5:cpu:/\n4:memory:/docker/1\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n")
    assert limit_bytes(tmp_path) == 5_000_000
