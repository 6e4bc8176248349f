from math import inf
from pathlib import Path

from app.core.machine_memory import available_bytes


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
