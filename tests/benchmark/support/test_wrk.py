"""What wrk is told to send."""

from __future__ import annotations

from pathlib import Path

from bench.support.forms import Body
from bench.support.wrk import _script

BODIES = [Body(b"one", {"Content-Type": "application/json"}), Body(b"two")]


def test_bodies_and_paths_go_in_turn_until_both_begin_anew(tmp_path: Path) -> None:
    script = _script(BODIES, 0.5, tmp_path, ["/a", "/b", "/c"])
    entries = next(line for line in script.splitlines() if "file = " in line)
    assert [part.split('"')[0] for part in entries.split('path = "')[1:]] == ["/a", "/b", "/c"] * 2
    assert [part.split('"')[0] for part in entries.split("body_")[1:]] == ["0", "1"] * 3
    assert {file.read_bytes() for file in tmp_path.iterdir()} == {b"one", b"two"}


def test_without_paths_all_go_to_the_url(tmp_path: Path) -> None:
    script = _script(BODIES, 0.5, tmp_path)
    assert script.count("path = nil") == len(BODIES)
    assert "math.max(#wholes, false and" in script


def test_traced_requests_get_headers_of_their_own(tmp_path: Path) -> None:
    assert "math.max(#wholes, true and" in _script(BODIES, 0.5, tmp_path, traced=True)
