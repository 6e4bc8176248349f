from math import inf
from pathlib import Path

import pytest

from app.core.free_memory import free_memory

MEMINFO = "MemTotal:       9000 kB\nMemFree:         1 kB\nMemAvailable:    5000 kB\n"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 5000 * 1024),
        ({"memory.max": "max", "memory.current": "7"}, 5000 * 1024),
        ({"memory.max": "3000", "memory.current": "1000"}, 2000),
        ({"memory.max": "1000", "memory.current": "1001"}, 0),
        ({"memory/memory.limit_in_bytes": "500", "memory/memory.usage_in_bytes": "100"}, 400),
    ],
)
def test_it_is_what_machine_and_container_leave(tmp_path: Path, files: dict[str, str], free: float) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path, tmp_path / "meminfo") == free


def test_a_system_that_does_not_tell_has_no_limit(tmp_path: Path) -> None:
    assert free_memory(tmp_path, tmp_path / "meminfo") == inf
