"""compose.yaml is valid, runs Ferry hardened, and gives Prometheus and Grafana what k8s/components/monitoring has."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.settings import Settings
from app.config.sources import variable
from tests.deploy.manifests import BASE, ROOT, pod_specs, read
from tests.deploy.monitoring.prometheus import MONITORING, promtool, rules
from tests.support.missing import skip_loudly

FILE = ROOT / "compose.yaml"
FOLDER = ROOT / "compose"
PAGE = ROOT / "docs" / "deploy.md"
PROTECTED = FOLDER / "protected.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]

#: The options of each `docker compose` on the page, before its subcommand.
COMMANDS = re.findall(r"^ {4}docker compose (.*)\bup --build --detach$", PAGE.read_text(), re.MULTILINE)


def checked(*options: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """By the schema of Compose, as Debian's docker-compose has it."""
    program = shutil.which("docker-compose")
    if program is None:
        skip_loudly("docker-compose is not installed: COMPOSE.YAML IS NOT CHECKED")
    command = [program, *options, "config", "--quiet"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", COMMANDS)
def test_what_a_command_of_the_page_names_is_valid(options: str) -> None:
    done = checked(*options.split())
    assert done.returncode == 0, done.stderr


def test_there_are_commands_for_both_looks() -> None:
    assert COMMANDS == ["", "--file compose.yaml --file compose/protected.yaml "]


def test_what_is_protected_changes_settings_and_a_file_of_prometheus_that_exist() -> None:
    services = yaml.safe_load(PROTECTED.read_text())["services"]
    assert services["ferry"]["environment"].keys() <= {variable(name) for name in Settings.model_fields}
    (flag,) = services["prometheus"]["command"]
    file = FOLDER / flag.removeprefix("--config.file=/etc/")
    usual, scrapes = (yaml.safe_load(each.read_text()) for each in (FOLDER / "prometheus/prometheus.yaml", file))
    assert scrapes["global"] == usual["global"]
    assert scrapes["rule_files"] == usual["rule_files"]
    mounted = {volume.split(":")[1] for volume in services["prometheus"]["volumes"]}
    (job,) = scrapes["scrape_configs"]
    assert mounted == {job["tls_config"]["ca_file"], job["authorization"]["credentials_file"]}


def test_a_misspelt_field_is_found(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(FILE.read_text().replace("read_only", "readonly"))
    done = checked(folder=tmp_path)
    assert done.returncode != 0
    assert "readonly" in done.stderr


def test_what_it_mounts_exists() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    assert mounted
    assert [path for path in mounted if not (ROOT / path).exists()] == []


def test_only_this_machine_reaches_its_ports() -> None:
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    reached = {port.rpartition(":")[2] for port in SERVICES["ferry"]["ports"]}
    assert reached == {str(Settings.model_fields[name].default) for name in ("rest_port", "grpc_port")}


def test_ferry_runs_and_ends_as_in_kubernetes() -> None:
    ferry = SERVICES["ferry"]
    assert (ferry["read_only"], ferry["cap_drop"]) == (True, ["ALL"])
    (spec,) = pod_specs(read(BASE))
    assert ferry["stop_grace_period"] == f"{spec['terminationGracePeriodSeconds']}s"


def test_the_rules_are_those_of_kubernetes() -> None:
    assert yaml.safe_load((FOLDER / "prometheus" / "rules.yaml").read_text()) == rules()
    promtool("check", "config", str(FOLDER / "prometheus" / "prometheus.yaml"))


def test_grafana_finds_the_dashboard_and_prometheus() -> None:
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards" / "ferry.yaml").read_text())["providers"]
    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasources" / "prometheus.yaml").read_text())["datasources"]
    dashboard = MONITORING / "dashboard.json"
    mount = f"./{dashboard.relative_to(ROOT)}:{provider['options']['path']}/"
    assert any(volume.startswith(mount) for volume in SERVICES["grafana"]["volumes"])
    page = json.loads(dashboard.read_text())
    assert source["type"] == next(each for each in page["templating"]["list"] if each["type"] == "datasource")["query"]
    assert source["isDefault"]
    host, port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()  # type: ignore[union-attr] - it matches
    assert SERVICES[host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"/d/{page['uid']}" in FILE.read_text()
