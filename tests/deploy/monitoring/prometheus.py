"""Debian's Prometheus: its tool, and a server that scrapes one of ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.manifests import ROOT
from tests.support.missing import skip_loudly
from tests.support.processes import free_port
from tests.support.waiting import HANG_S, wait_until

MONITORING = ROOT / "k8s" / "components" / "monitoring"


def rules() -> dict[str, Any]:
    """The groups of the PrometheusRule, as Prometheus reads them."""
    manifest: dict[str, Any] = yaml.safe_load((MONITORING / "prometheusrule.yaml").read_text())
    groups: dict[str, Any] = manifest["spec"]
    return groups


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in rules()["groups"] for rule in group["rules"]}


def panels() -> dict[str, list[str]]:
    """The queries of each panel of the dashboard, by its title, as Grafana sends them when all is chosen."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    chosen = {"$__rate_interval": "1m", "$namespace": ".*", "$model": ".*"}
    return {
        panel["title"]: [filled(target["expr"], chosen) for target in panel["targets"]]
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    }


def filled(expression: str, values: dict[str, str]) -> str:
    """With each name of `values` replaced by its value."""
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\bferry_\w+", expression))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        skip_loudly(f"{name} is not installed (Debian: prometheus): METRICS, ALERTS AND DASHBOARD ARE NOT TRIED")
    return found


def promtool(*arguments: str, cwd: Path | None = None, text: str | None = None) -> str:
    """What it prints. Raises AssertionError if it finds a fault."""
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=cwd, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A server that scrapes once a second, and its API."""

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=HANG_S)

    def close(self) -> None:
        self._client.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        reply = self._client.get("/query", params={"query": expression}).json()
        assert reply["status"] == "success", (expression, reply)
        result: list[dict[str, Any]] = reply["data"]["result"]
        return result

    def firing(self) -> dict[str, dict[str, str]]:
        """By name the annotations of the alerts that fire."""
        found = self._client.get("/alerts").json()["data"]["alerts"]
        return {each["labels"]["alertname"]: each["annotations"] for each in found if each["state"] == "firing"}

    def alerts_known(self) -> set[str]:
        """The names of the alerts that it evaluates."""
        groups = self._client.get("/rules").json()["data"]["groups"]
        return {rule["name"] for group in groups for rule in group["rules"]}

    def wait_for(self, expression: str) -> None:
        wait_until(lambda: bool(self.query(expression)), f"Prometheus never had {expression}")

    def ready(self) -> bool:
        try:
            return self._client.get("/query", params={"query": "up"}).status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[Prometheus]:
    """Prometheus with our alerts, which fire at once instead of after a while."""
    groups = rules()
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "rules.yaml").write_text(yaml.safe_dump(groups))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "ferry", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with configured(folder) as server:
        yield server


@contextmanager
def configured(folder: Path) -> Iterator[Prometheus]:
    """Prometheus with the prometheus.yaml that lies in the folder, where its log and what it stores go, too."""
    port = free_port()
    command = [
        program("prometheus"),
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    server = Prometheus(port)
    try:
        wait_until(server.ready, f"Prometheus never answered; {folder}/prometheus.log has its log")
        yield server
    finally:
        server.close()
        process.kill()
        process.wait(HANG_S)
