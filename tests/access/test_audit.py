from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.access.audit import Audit
from app.core.events import AccessDenied, Administered, CredentialsLoaded, Event, tell_all


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[tuple[Audit, list[float]]]:
    now = [0.0]
    made = Audit(str(tmp_path / "audit"), lambda: now[0])
    yield made, now
    made.close()


def tell(audit: Audit, *events: Event) -> None:
    for event in events:
        tell_all(audit.subscriptions)(event)


DENIED = AccessDenied("unknown", "", "tensorflow_rest", "10.0.0.7", "POST /v1/models/m:predict")


def test_who_did_what_from_where_and_how_it_went(
    audit: tuple[Audit, list[float]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    caplog.handler.setLevel(logging.NOTSET)
    tell(
        audit[0],
        Administered("ops", "open_inference_rest", "10.0.0.7", "POST /v2/repository/models/m/unload", "200"),
        DENIED,
        CredentialsLoaded("file", "failed", "The access file x: it is not YAML; what was allowed before stays"),
    )
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(each["level"], each.get("caller"), each["action"], each["outcome"]) for each in lines] == [
        ("info", "ops", "administration", "200"),
        ("warning", None, "request", "unknown"),
        ("error", None, "load file", "failed"),
    ]
    assert lines[0]["client"] == "10.0.0.7"
    assert lines[0]["path"] == "POST /v2/repository/models/m/unload"
    assert all(each["logger"] == "ferry.audit" and each["time"] for each in lines)
    assert [record.name for record in caplog.records] == ["ferry.audit"] * 3, "and in the log, whatever its level"


def test_strangers_fill_no_log(audit: tuple[Audit, list[float]], tmp_path: Path) -> None:
    made, now = audit
    tell(made, *[DENIED] * 1000)
    assert len((tmp_path / "audit").read_text().splitlines()) == 60
    now[0] = 60.0
    tell(made, DENIED._replace(request=f"POST /{'x' * 10_000}"))
    *_, others, last = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert others["message"] == "Denied: 940 more requests in that minute"
    assert len(last["message"]) < 400


def test_strangers_fill_no_log_with_administration_that_is_rejected(
    audit: tuple[Audit, list[float]], tmp_path: Path
) -> None:
    made, _ = audit
    done = Administered("ops", "open_inference_rest", "10.0.0.7", "POST /v2/repository/models/m/load", "200")
    tell(
        made, *[done._replace(caller="", code=code) for code in ("401", "403", "PERMISSION_DENIED") for _ in range(50)]
    )
    tell(made, *[done, done._replace(code="OK")] * 100)
    made.close()
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert len([each for each in lines if each.get("outcome") in {"401", "403", "PERMISSION_DENIED"}]) == 60
    assert len([each for each in lines if each.get("caller") == "ops"]) == 200, "what changed something is always told"
    assert lines[-1]["message"] == "Administration: 90 more requests were rejected in that minute"


def test_a_file_that_was_moved_away_is_made_anew(audit: tuple[Audit, list[float]], tmp_path: Path) -> None:
    tell(audit[0], DENIED)
    (tmp_path / "audit").rename(tmp_path / "audit.1")
    tell(audit[0], DENIED)
    assert len((tmp_path / "audit").read_text().splitlines()) == 1
