"""`ferry shard` as a command, each time in a process of its own: it decides which devices TensorFlow has."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.pages.commands import commands, words
from tests.support.forks.programs import run_program
from tests.support.savedmodels import make_image_net


def ferry_shard(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_program("-m", "app", "shard", *map(str, arguments))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "image_net"
    make_image_net(folder / "1")
    return folder


def test_it_tells_what_it_split_that_answers_are_equal_and_where_it_wrote(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "split" / "1"
    (shown,) = commands("docs/sharding.md")
    shard, *arguments = words(shown, {"models/mlp": str(model), "/srv/models/mlp/2": str(out)})
    assert shard == "shard"
    done = ferry_shard(*arguments, "--device-kind", "CPU", "--min-mb", 0)
    assert done.returncode == 0, done.stderr
    *layers, equal, written = done.stdout.splitlines()
    assert layers
    assert all(layer.endswith((", by columns", ", by rows")) for layer in layers)
    assert equal == "Equal to the original within 1e-05 on random inputs."
    assert written == f"Written to {out}, on CPU:0, CPU:1."
    assert (out / "saved_model.pb").exists()
    assert [each.name for each in out.parent.iterdir()] == ["1"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--devices", 2], "ferry: --devices is 2, but TensorFlow sees 0 of kind GPU; expected at most that"),
        (["--devices", 2, "--device-kind", "CPU"], "of at least 1 MB to split over 2 devices; expected one,"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_one_line(model: Path, tmp_path: Path, arguments: list[object], expected: str) -> None:
    done = ferry_shard(model, tmp_path / "out", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_wrong_options_say_what_is_expected(model: Path, tmp_path: Path) -> None:
    for option, expected in {"--devices=1": "2", "--device-kind=TPU": "'CPU', 'GPU'"}.items():
        done = ferry_shard(model, tmp_path / "out", "--devices=2", option)
        assert done.returncode == 2
        assert expected in done.stderr
