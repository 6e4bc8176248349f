"""A real server in which every operation of the OpenAPI document can succeed: labels, shared memory, model control."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.model_server.test_drop_in import model_server
from tests.official_clients.savedmodels import make_classic
from tests.support.openapi_calls import CLASSIC, REGION, REGION_BYTES, SHIPPED, SPARE
from tests.support.processes import ROOT, ServerProcess
from tests.support.savedmodels import make_half_plus_two

_MODEL = 'config {{ name: "{0}" base_path: "{1}/{0}" model_platform: "tensorflow" {2} }}'
_LABEL = 'version_labels { key: "stable" value: 1 }'


@contextmanager
def described_server(folder: Path, **variables: str) -> Iterator[ServerProcess]:
    models = folder / "models"
    for name in SHIPPED:
        shutil.copytree(ROOT / "models" / name / "1", models / name / "1")
    make_classic(models / CLASSIC / "1")
    make_half_plus_two(models / SPARE / "1")
    configs = " ".join(_MODEL.format(name, models, _LABEL) for name in (*SHIPPED, CLASSIC, SPARE))
    (folder / "models.config").write_text(f"model_config_list {{ {configs} }}")
    region = Path("/dev/shm") / REGION  # noqa: S108 - where shared memory lies
    region.write_bytes(bytes(REGION_BYTES))
    settings = {
        "FERRY_DEFAULT_MODEL": "digits",
        "FERRY_MODEL_CONTROL": "explicit",
        "FERRY_EXECUTION_VARIANT": "plain",
        **variables,
    }
    try:
        with model_server(folder / "log", f"--model_config_file={folder / 'models.config'}", **settings) as (server, _):
            yield server
    finally:
        region.unlink()
