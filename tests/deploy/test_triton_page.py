"""docs/migrate-from-triton.md: its copy of a repository can be served, its flags and settings exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from app.config.settings import Settings
from app.model_server.flags import FLAGS
from app.protocols.open_inference.model_configuration.config_overrides import _KNOBS
from tests.deploy.manifests import ROOT

PAGE = (ROOT / "docs/migrate-from-triton.md").read_text()


def test_the_copy_of_a_repository_has_the_layout_that_is_served(tmp_path: Path) -> None:
    (script,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for model, version in (("bert", 1), ("bert", 12), ("with space", 3)):
        graph = tmp_path / f"triton/{model}/{version}/model.savedmodel/saved_model.pb"
        graph.parent.mkdir(parents=True)
        graph.write_text(f"{model} {version}")
    script = script.replace("/srv/triton", f"'{tmp_path}/triton'").replace("/srv/models", f"'{tmp_path}/models'")
    subprocess.run(["sh", "-euc", script], check=True)
    copied = {str(path.relative_to(tmp_path / "models")): path.read_text() for path in tmp_path.glob("models/**/*.pb")}
    assert copied == {
        "bert/1/saved_model.pb": "bert 1",
        "bert/12/saved_model.pb": "bert 12",
        "with space/3/saved_model.pb": "with space 3",
    }


def test_the_right_column_names_settings() -> None:
    rows = re.findall(r"^\| `.+ \| (.+) \|$", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z]+(?:_[a-z]+)*)(?:=\w+)?`", row)}
    assert named - {"priority", "timeout"} <= set(Settings.model_fields)
    assert len(named) > 12


def test_what_a_load_may_override_is_told() -> None:
    assert all(f"`{knob}`" in PAGE for knob in _KNOBS)


def test_the_runtime_of_kserve_gives_flags_that_the_drop_in_takes() -> None:
    flags = set(re.findall(r"--([a-z_]+)=", PAGE.partition("\n## KServe\n")[2]))
    assert {"model_name", "model_base_path", "rest_api_port", "port"} == flags
    assert all(name in FLAGS and not FLAGS[name].idle for name in flags)
