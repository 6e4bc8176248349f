"""What CI makes of pip-audit's reports: one that asked nobody is no success."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.deploy.manifests import ROOT

CLEAN = {"name": "a", "version": "1", "vulns": []}
VULNERABLE = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}


@pytest.fixture
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit_report", ROOT / ".ci/audit_report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder: Path, *packages: object) -> str:
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"dependencies": packages, "fixes": []}))
    return str(path)


def test_where_nobody_could_be_asked_it_is_said_loudly_and_ci_goes_on(
    report: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.json").touch()
    files = [write(tmp_path, SKIPPED), str(tmp_path / "empty.json"), str(tmp_path / "missing.json")]
    report.main(files)
    assert "NO ADVISORY SOURCE COULD BE REACHED" in capsys.readouterr().out


def test_what_is_known_to_be_vulnerable_is_named(
    report: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report.main([write(tmp_path, CLEAN), write(tmp_path, SKIPPED)])
    assert "1 locked packages were audited; 0 vulnerabilities" in capsys.readouterr().out
    report.main([write(tmp_path, CLEAN, VULNERABLE)])
    assert "VULNERABLE: b 2: PYSEC-1, fixed in 3" in capsys.readouterr().out


def test_ci_audits_every_lock_that_is_installed_to_serve() -> None:
    script = (ROOT / ".ci/audit").read_text()
    assert "audit serve " in script
    assert "for lock in gpu jwt tracing client;" in script
    assert "stage .ci/audit\n" in (ROOT / ".ci/run").read_text()
