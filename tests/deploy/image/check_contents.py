"""What is in the image, what is not, how large it is, and what it says about itself."""

import json
from functools import cache
from typing import Any

import pytest

from tests.deploy.image.container import IMAGE, docker, inside
from tests.deploy.image.layers import beyond, layers


def test_holds_no_compiler_and_runs_without_privileges() -> None:
    code = "import os, shutil; print(os.getuid(), shutil.which('cc'), shutil.which('gcc'))"
    assert inside(code) == "10001 None None"


def test_reads_long_json_arrays_by_compiled_code() -> None:
    assert inside("from app.codecs.json.compiled_numbers import available; print(available())") == "True"
    assert inside("from app.pipelines.fold.compiled_fold import library; print(library() is not None)") == "True"


def test_carries_no_training_script_and_no_header() -> None:
    code = (
        "import importlib.util, pathlib; folder = pathlib.Path(importlib.util.find_spec('tensorflow').origin).parent; "
        "print(*pathlib.Path('/models').rglob('*.py'), *folder.glob('include'))"
    )
    assert inside(code) == ""


def test_carries_nothing_that_installs_packages() -> None:
    code = (
        "import pathlib; tools = {'pip', 'setuptools', 'wheel', 'ensurepip', 'hatchling'}; "
        "print(*(path for top in ('/venv', '/usr', '/opt') for path in pathlib.Path(top).rglob('*') "
        "if path.name.split('-')[0] in tools and '/tensorflow/' not in str(path)))"
    )
    assert inside(code) == ""


def test_carries_the_operations_that_a_model_may_bring() -> None:
    """TensorFlow exports the C++ names that libraries of custom operations are linked against."""
    code = (
        "import ctypes, importlib.util, pathlib; origin = importlib.util.find_spec('tensorflow').origin; "
        "library = ctypes.CDLL(pathlib.Path(origin).with_name('libtensorflow_framework.so.2')); "
        "print(hasattr(library, '_ZN10tensorflow8OpKernelC2EPNS_20OpKernelConstructionE'))"
    )
    assert inside(code) == "True"


def test_its_bytecode_is_current() -> None:
    """Its user cannot write it, so a start would compile what lacks it, each time."""
    code = "import sys, app.cli, tensorflow; print(*(name for name, module in sys.modules.items() if stale(module)))"
    stale = (
        "import importlib.util, os\n"
        "def stale(module):\n"
        "    path = getattr(module, '__cached__', None)\n"
        "    source = getattr(module, '__file__', None)\n"
        "    if not path or not source.endswith('.py') or module.__name__ == '__main__': return False\n"
        "    if not os.path.exists(path): return True\n"
        "    stamp = int.from_bytes(open(path, 'rb').read(12)[8:], 'little')\n"
        "    return stamp != int(os.stat(source).st_mtime)\n"
    )
    assert inside(stale + code) == ""


def test_no_layer_grew_beyond_its_bound() -> None:
    assert beyond(layers(IMAGE)) == []


@cache
def labels() -> dict[str, str]:
    found: dict[str, str] = json.loads(docker("inspect", "-f", "{{json .Config.Labels}}", IMAGE))
    return found


@pytest.mark.parametrize(
    "name", ["title", "description", "licenses", "source", "version", "revision", "created", "base.name"]
)
def test_it_says_what_it_is(name: str) -> None:
    assert labels()[f"org.opencontainers.image.{name}"] not in ("", "unknown")


def test_its_list_of_components_is_what_is_installed() -> None:
    written: dict[str, Any] = json.loads(inside("print(open('/usr/share/ferry/sbom.cdx.json').read())"))
    listed = {(each["name"], each["version"]) for each in [*written["components"], written["metadata"]["component"]]}
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps([[d.metadata['Name'], d.version] for d in m.distributions(path=['@'])]))"
    ).replace("@", "/venv/lib/python3.11/site-packages")
    assert written["specVersion"] == "1.6"
    assert listed == {tuple(each) for each in json.loads(inside(code))}
    assert all(each["purl"].startswith("pkg:pypi/") for each in written["components"])
