"""What k8s/components/monitoring asks for exists, its alerts fire when they should, and the runbook explains each."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from app.instrumentation.metric_definitions import FERRY_METRICS
from tests.deploy.manifests import ROOT
from tests.deploy.monitoring.prometheus import MONITORING, alerts, metrics_in, panels, promtool, rules

UNIT_TESTS = Path(__file__).parent / "alerts.test.yaml"
SERIES = {
    f"{name}{suffix}"
    for name, kind, *_ in FERRY_METRICS
    for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
}


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    asked = {f"alert {name}": rule["expr"] for name, rule in alerts().items()}
    asked |= {f"panel {title}": " ".join(queries) for title, queries in panels().items()}
    unknown = {where: metrics_in(expression) - SERIES for where, expression in asked.items()}
    assert {where: names for where, names in unknown.items() if names} == {}


def test_the_dashboard_is_well_formed() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    assert max(x for x, _ in cells) < 24
    defined = {each["name"] for each in dashboard["templating"]["list"]} | {"__rate_interval", "__all"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) <= defined


def test_each_alert_has_a_severity_a_summary_and_an_entry_in_the_runbook() -> None:
    entries = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sorted(entries) == sorted(alerts())
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, name
        assert rule["annotations"]["summary"], name
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"


def test_each_alert_has_unit_tests_that_it_fires_and_that_it_does_not() -> None:
    fires, silent = set(), set()
    for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]:
        for each in test["alert_rule_test"]:
            (fires if each["exp_alerts"] else silent).add(each["alertname"])
    assert fires == silent == set(alerts())


def test_alerts_fire_on_their_fault_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    shutil.copy(UNIT_TESTS, tmp_path)
    promtool("check", "rules", "rules.yaml", cwd=tmp_path)
    promtool("test", "rules", UNIT_TESTS.name, cwd=tmp_path)


def test_a_threshold_that_was_changed_is_found_by_the_unit_tests(tmp_path: Path) -> None:
    seeded = yaml.safe_dump(rules()).replace("> 0.9", "> 0.99")
    (tmp_path / "rules.yaml").write_text(seeded)
    shutil.copy(UNIT_TESTS, tmp_path)
    with pytest.raises(AssertionError, match="FerryDevicesBusy"):
        promtool("test", "rules", UNIT_TESTS.name, cwd=tmp_path)
