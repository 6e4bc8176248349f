import json
import sys
from pathlib import Path

import pytest

from bench import json_bodies


def test_the_script_writes_ratios_by_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["json_bodies", "--rounds", "2", "--seconds", "0.001", "--json", str(file)])
    json_bodies.main()
    figures = json.loads(file.read_text())
    assert len(figures["read_image"]) == 2
    assert all(ratio > 0 for ratios in figures.values() for ratio in ratios)
