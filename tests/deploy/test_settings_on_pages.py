"""What the pages say of settings (values, defaults, flags) is what the settings say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.config.sources import flag_of
from tests.deploy.manifests import ROOT

PAGES = [ROOT / "README.md", ROOT / "clients/python/README.md", *sorted((ROOT / "docs").glob("*.md"))]
DEFAULTS = Settings()
UNITS = {"": 1, "s": 1, "times": 1, "a second": 1, "KiB": 1024, "KiB a second": 1024, "MiB": 1024**2}

all_pages = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


def in_base_units(figure: str) -> float | None:
    """Such as 65536 for `64 KiB`; None for words."""
    found = re.fullmatch(r"([\d,]+) ?(.*)", figure)
    return float(found[1].replace(",", "")) * UNITS[found[2]] if found else None


def test_the_limits_of_the_readme_are_the_defaults() -> None:
    section = (ROOT / "README.md").read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .+ \| (.+) \| `(\w+)` \|$", section, re.MULTILINE)
    assert len(rows) > 10
    for figure, name in rows:
        default = getattr(DEFAULTS, name)
        base = default / 1000 if name.endswith("_ms") else default
        assert (in_base_units(figure) or 0) == base, name


@all_pages
def test_every_value_that_a_page_gives_a_setting_is_accepted(page: Path) -> None:
    text = page.read_text()
    shown = [*re.findall(r"\bFERRY_([A-Z_]+)=([^\s`)(]+)", text), *re.findall(r"`([a-z_]+)=([^\s`]+)`", text)]
    for name, value in shown:
        if name.lower() in Settings.model_fields:
            Settings(**{name.lower(): value.removesuffix(",...")})


@all_pages
def test_every_flag_of_ferry_serve_sets_something(page: Path) -> None:
    known = {flag_of(name) for name in Settings.model_fields} | {"--config", "--help"}
    for line in re.findall(r"\bferry serve([^`\n#]*)", page.read_text()):
        assert set(re.findall(r"--[a-z][a-z-]*", line)) <= known


def test_the_proxy_of_the_deployment_page_goes_with_the_defaults() -> None:
    page = (ROOT / "docs/deploy.md").read_text()
    (nginx,) = re.findall(r"^```nginx\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    sizes = [1024**2 * int(each) for each in re.findall(r"client_max_body_size (\d+)m;", nginx)]
    assert sizes == [DEFAULTS.max_body_bytes, DEFAULTS.grpc_max_message_bytes]
    (idle_s,) = re.findall(r"keepalive_timeout (\d+)s;", nginx)
    assert int(idle_s) < DEFAULTS.keep_alive_s
    for wait_s in re.findall(r"_read_timeout (\d+)s;", nginx):
        assert 1000 * int(wait_s) > DEFAULTS.request_timeout_ms
    ports = {int(each) for each in re.findall(r"127\.0\.0\.1:(\d+)", nginx)}
    assert ports == {DEFAULTS.rest_port, DEFAULTS.grpc_port}
