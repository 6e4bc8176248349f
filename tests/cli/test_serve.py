"""`ferry serve --help`: the settings most used come first, the others by topic."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.config.settings import MOST_USED, Settings
from app.config.sources import flag_of


@pytest.mark.parametrize("columns", [80, 120])
def test_the_help_shows_the_ten_most_used_settings_first_and_each_setting_once(columns: int) -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": str(columns)}, terminal_width=columns).output
    flags = re.findall(r"^  (--[a-z0-9-]+)", shown, re.MULTILINE)
    assert flags[:12] == ["--config", *map(flag_of, MOST_USED), "--help"]
    assert sorted(flags[12:]) == sorted(flag_of(name) for name in Settings.model_fields if name not in MOST_USED)
    assert max(map(len, shown.splitlines())) <= columns


def test_the_help_names_the_topic_of_each_setting() -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"]).output
    titles = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert titles == ["Arguments", "Most used", *(title.rstrip(".") for title in Settings.by_topic())]
    for title, names in Settings.by_topic().items():
        section = shown.partition(f"\n{title.rstrip('.')}:\n")[2].partition("\n\n")[0]
        assert {flag_of(name) for name in names if name not in MOST_USED} == set(
            re.findall(r"^  (--[a-z0-9-]+)", section, re.MULTILINE)
        )


def test_each_setting_has_one_topic() -> None:
    assert [name for names in Settings.by_topic().values() for name in names] == list(Settings.model_fields)
    assert set(MOST_USED) <= set(Settings.model_fields)
