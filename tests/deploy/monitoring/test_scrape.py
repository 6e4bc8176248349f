"""Prometheus scrapes a running server that has one broken model among its good ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.deploy.manifests import ROOT
from tests.deploy.monitoring.prometheus import Prometheus, alerts, configured, filled, panels, promtool, scraping
from tests.support.processes import ServerProcess, serving
from tests.support.waiting import wait_until

#: No GPU is there.
_WITHOUT_DATA = {"Memory of GPUs that TensorFlow uses"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    models = tmp_path_factory.mktemp("models")
    shutil.copytree(ROOT / "models" / "digits", models / "digits")
    broken = models / "broken" / "1"
    shutil.copytree(ROOT / "models" / "digits" / "1", broken)
    (broken / "saved_model.pb").write_bytes(b"this is no graph")
    with serving(models, models.parent / f"{models.name}.log", settle_s=0) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraping(server.url.removeprefix("http://"), tmp_path_factory.mktemp("prometheus")) as running:
        running.wait_for('ferry_requests_total{model="digits"}')
        image = {"instances": [[[0.0] * 8] * 8]}

        def asked_and_seen() -> bool:
            assert server.client.post("/v1/models/digits:predict", json=image).status_code == 200
            return bool(running.query('rate(ferry_request_seconds_count{model="digits"}[1m]) > 0'))

        wait_until(asked_and_seen, "Prometheus never saw requests")
        yield running


def test_one_corrupt_model_does_not_keep_a_new_server_from_being_ready(server: ServerProcess) -> None:
    reply = server.client.get("/readyz")
    assert reply.status_code == 200
    assert reply.json()["status"] == "ok"
    assert reply.json()["problems"][0].startswith("Model broken version 1 is not loaded: ")


def test_the_page_follows_the_rules_of_prometheus(server: ServerProcess) -> None:
    assert promtool("check", "metrics", text=server.client.get("/metrics").text) == ""


def test_a_fault_of_the_page_is_found(server: ServerProcess) -> None:
    page = server.client.get("/metrics").text.replace("ferry_padded_rows_total", "ferry_padded_rows")
    with pytest.raises(AssertionError, match="ferry_padded_rows"):
        promtool("check", "metrics", text=page)


def test_prometheus_is_answered_in_openmetrics(server: ServerProcess) -> None:
    asked = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
    reply = httpx.get(f"{server.url}/metrics", headers={"Accept": asked})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


@pytest.mark.parametrize("title", panels())
def test_each_panel_has_data(prometheus: Prometheus, title: str) -> None:
    for query in panels()[title]:
        found = prometheus.query(query)
        assert bool(found) is (title not in _WITHOUT_DATA), query


def test_what_autoscalers_ask_for_has_values(prometheus: Prometheus) -> None:
    components = ROOT / "k8s" / "components"
    scaled = yaml.safe_load((components / "autoscaling-keda" / "scaledobject.yaml").read_text())
    adapter = yaml.safe_load((components / "autoscaling-hpa" / "adapter-rules.yaml").read_text())
    asked = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    asked += [rule["metricsQuery"] for rule in adapter["rules"]]
    here = {'namespace="ferry",': "", "<<.LabelMatchers>>": 'job="ferry"', "<<.GroupBy>>": "instance"}
    for query in asked:
        (found,) = prometheus.query(filled(query, here))
        assert 0 <= float(found["value"][1]) < 1, query


@pytest.mark.parametrize("name", alerts())
def test_each_alert_can_be_asked(prometheus: Prometheus, name: str) -> None:
    found = prometheus.query(alerts()[name]["expr"])
    assert bool(found) is (name == "FerryModelNotServed")


def test_the_alert_says_which_model_is_not_served_and_why(prometheus: Prometheus) -> None:
    prometheus.wait_for('ALERTS{alertname="FerryModelNotServed",alertstate="firing"}')
    firing = prometheus.firing()
    assert set(firing) == {"FerryModelNotServed"}
    assert firing["FerryModelNotServed"]["summary"] == 'Model "broken" version 1 is not served by 1 pods: incomplete'
    assert firing["FerryModelNotServed"]["description"].startswith("Model broken version 1 is not loaded: ")


def test_the_configuration_of_compose_scrapes_and_alerts(server: ServerProcess, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "compose" / "prometheus", tmp_path, dirs_exist_ok=True)
    config = (tmp_path / "prometheus.yaml").read_text()
    here = {"ferry:8501": server.url.removeprefix("http://"), "interval: 5s": "interval: 1s"}
    assert all(each in config for each in here)
    (tmp_path / "prometheus.yaml").write_text(filled(config, here))
    with configured(tmp_path) as running:
        running.wait_for('ferry_build_info{job="ferry"}')
        assert running.alerts_known() == set(alerts())
