"""`ferry check` on real models. The oracle for faults is what the server's own parts tell."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from typer.testing import CliRunner, Result

from app.cli import app
from app.config.settings import PREFIX
from tests.support.savedmodels import make_tf1

ROOT = Path(__file__).parents[2]

CASCADE = """
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, when: small.score < 2}
outputs: {y: [big.y, small.y], score: small.score}
"""


def save(folder: Path, body: Callable[[Any], Any], dtype: Any = tf.float32) -> None:
    module = tf.Module()
    module.answer = tf.function(body, input_signature=[tf.TensorSpec([None, 2], dtype, name="x")])
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.answer})


def put(folder: Path, text: str | bytes = CASCADE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save(folder / "small" / "1", lambda x: {"score": tf.reduce_sum(x, 1), "y": x + 1})
    save(folder / "big" / "1", lambda x: {"y": x * 10})
    return folder


@pytest.fixture
def models(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder is the one that holds them."""
    for name in list(os.environ):
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved, tmp_path / "models")
    put(tmp_path / "models" / "read" / "3")
    return tmp_path / "models"


def ferry(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["check", "--quick", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def faults(*arguments: object) -> list[str]:
    """The lines of what is wrong, without notes."""
    result = ferry(*arguments)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert result.exit_code == (1 if lines else 0), result.output
    return lines


def notes(*arguments: object) -> list[str]:
    return [line[6:] for line in ferry(*arguments).stderr.splitlines() if line.startswith("note: ")]


DRAWING = """\
read version 3: models/read/3/pipeline.yaml
  in  x      float32[?,2]
  out y      float32[?,2]
  out score  float32[?]

  ○     x
  ├▶●   small = small
  │ │     x ← x
  ●◀┤   big = big
  │ │     x ← x
  │ │     when small.score < 2
  ■◀┤   y ← big.y, else small.y
    ■   score ← small.score

  ○ input   ● step = model   ■ output   ← is read from

"""

# --- which pipelines ---


def test_a_pipeline_is_described_and_drawn_wherever_it_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = "{0} version 1: models/{0}/1\n  signatures: serving_default (ferry inspect shows inputs and outputs)\n\n"
    result = ferry("models")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == plain.format("big") + DRAWING + plain.format("small")
    for named in ("models/read", "models/read/3", "models/read/3/pipeline.yaml", "models/read/"):
        assert ferry(named).stdout == DRAWING
    assert ferry(models / "read").stdout == DRAWING.replace("models/read/3", str(models / "read" / "3"))
    monkeypatch.chdir(models / "read" / "3")
    for named in (".", "..", "pipeline.yaml"):
        assert ferry(named).stdout == DRAWING.replace("models/read/3/", "")


def test_the_newest_version_is_checked_and_any_that_is_named(models: Path) -> None:
    put(models / "read" / "4", CASCADE.replace("small.score", "small.scores"))
    (fault,) = faults("models/read")
    assert fault.startswith("models/read/4/pipeline.yaml: step 'big': small.scores: its model has no output 'scores'")
    assert not faults("models/read/3")


def test_a_model_without_signatures_is_told(models: Path) -> None:
    tf.saved_model.save(tf.Module(), str(models / "mute" / "1"))
    assert ferry("models/mute").stdout.startswith(
        "mute version 1: models/mute/1\n  no signatures, so no request can call it;"
    )


def test_a_draft_outside_of_the_models_is_checked_against_them(models: Path, tmp_path: Path) -> None:
    put(tmp_path / "drafts" / "mine")
    for more in ([], ["--models", "models"]):
        result = ferry("drafts/mine", *more)
        assert result.stdout == DRAWING.replace("read version 3: models/read/3", "mine: drafts/mine")
        note = "note: mine is not a version, a whole number: no server would find it here\n"
        assert result.stderr == ("" if more else note), "whoever names the models knows that it lies elsewhere"
    put(tmp_path / "others" / "mine" / "1")
    assert not faults("others", "--models", "models")
    put(tmp_path / "others" / "mine" / "1", CASCADE.replace("model: big,", 'model: "big:stable",'))
    assert faults("others") == [
        f"others/mine/1/pipeline.yaml: step {name!r}: there is no model {name!r} in {tmp_path}/others, and no other"
        for name in ("small", "big")
    ], "with a label, too"


def test_the_graph_is_told_to_graphviz(models: Path) -> None:
    put(models / "write" / "1")
    (models / "small" / "1" / "variables" / "variables.index").rename(models / "kept")
    result = ferry("models", "--dot")
    assert result.exit_code == 1
    assert result.stdout == "digraph pipelines {\n  node [shape=box];\n}\n"
    (models / "kept").rename(models / "small" / "1" / "variables" / "variables.index")
    result = ferry("models", "--dot")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("subgraph cluster_") == 2
    assert result.stdout.count('[label="small = small"]') == 2


# --- what is wrong ---


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("model: big,", "model: bag,", ["step 'big': there is no model 'bag' in "]),
        ("model: big,", 'model: "big:7",', ["step 'big': model 'big' has no version 7, only 1"]),
        (
            "inputs: {x: x}, when",
            "inputs: {x: small.score}, when",
            ["step 'big': input 'x': small.score is [?], but should be [?,2]"],
        ),
        ("{model: small, inputs: {x: x}}", "{model: small, inputs: {x: big.y}}", ["steps need each other: "]),
        ("model: big,", "model: read,", ["step 'big': read is a pipeline: a step should be a model"]),
        ("[big.y, small.y]", "big.y", ["output 'y': some rows may have no value"]),
        ("outputs:", "more: 1\noutput:", ["'outputs' is missing", "'more' is not known", "'output' is not known"]),
        ("steps:", "steps: *x", ["it is no YAML: "]),
    ],
)
def test_what_is_wrong_is_told_as_the_server_tells_it(models: Path, old: str, new: str, told: list[str]) -> None:
    assert old in CASCADE
    put(models / "read" / "3", CASCADE.replace(old, new))
    found = faults("models/read")
    assert len(found) == len(told)
    for line in told:
        assert any(each.startswith(f"models/read/3/pipeline.yaml: {line}") for each in found), found


def test_types_that_do_not_fit_are_told(models: Path) -> None:
    save(models / "big" / "2", lambda x: {"y": x * 10}, tf.int32)
    assert faults("models/read/3") == [
        "models/read/3/pipeline.yaml: step 'big': input 'x': x is float32 elsewhere, but should be int32 here"
    ]
    put(models / "read" / "3", CASCADE.replace("model: big,", 'model: "big:1",'))
    assert not faults("models/read")
    assert notes("models/read") == [
        "big:1 is not the newest version: the model config file of ferry-model-server has to say that it is served"
    ]
    assert ferry("models").stdout.count("big version") == 1, "what only a step names is not listed"


def test_models_that_are_not_whole_are_told(models: Path) -> None:
    (models / "small" / "1" / "variables" / "variables.index").unlink()
    (models / "big" / "2").mkdir()
    (models / "big" / "2" / "saved_model.pb").write_bytes(b"\xff\x01 no model")
    (models / "none" / "1").mkdir(parents=True)
    (models / "lost" / "1").mkdir(parents=True)
    shutil.copy(models / "small" / "1" / "saved_model.pb", models / "lost" / "1")
    (models / "empty").mkdir()
    put(models / "both" / "1", CASCADE)
    (models / "both" / "1" / "saved_model.pb").write_bytes(b"")
    found = faults("models")
    assert found[0].startswith("models/big/2: saved_model.pb, of 11 bytes, is cut short or no SavedModel")
    assert found[1:] == [
        "models/both/1: it holds both saved_model.pb and pipeline.yaml, and may hold one of them",
        "models/lost/1: variables/variables.index is not there",
        "models/none/1: it holds no saved_model.pb, model.tflite or pipeline.yaml",
        "models/read/3/pipeline.yaml: step 'small': it waits for small "
        "(Model small version 1 is not loaded: variables/variables.index is not there)",
        "models/small/1: variables/variables.index is not there",
    ]
    assert "big version 1" in ferry("models").stdout, "the one before it would be served"
    assert notes("models") == [f"{models}/empty is ignored: it holds no version folder, named by a whole number"]
    assert (
        faults("models/none")
        == faults("models/none/1")
        == ["models/none/1: it holds no saved_model.pb, model.tflite or pipeline.yaml"]
    )


def test_settings_say_what_a_model_may_do(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(models / "big")
    save(models / "big" / "1", lambda x: {"y": x + tf.strings.to_number(tf.io.read_file("/number"))})
    (fault,) = faults("models/big")
    assert fault.startswith("models/big/1: big/1 cannot be loaded: its operation ReadFile (")
    (fault,) = faults("models/read")
    assert fault.startswith("models/read/3/pipeline.yaml: step 'big': it waits for big (Model big version 1 is")
    monkeypatch.setenv("FERRY_ALLOWED_OPERATIONS", "ReadFile")
    assert not faults("models")


def test_settings_say_which_inputs_a_step_may_leave_out(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tf.Module()
    specs = [tf.TensorSpec([None, 2], tf.float32, name=name) for name in ("x", "mask")]
    module.answer = tf.function(lambda x, mask: {"y": x * mask}, input_signature=specs)
    tf.saved_model.save(module, str(models / "big" / "2"), signatures={"serving_default": module.answer})
    assert faults("models/read") == ["models/read/3/pipeline.yaml: step 'big': big needs a value for its input 'mask'"]
    monkeypatch.setenv("FERRY_MASK_INPUTS", "big/mask=x")
    assert not faults("models/read")
    monkeypatch.setenv("FERRY_PAD_VALUES", "big/x=many")
    newest, one_before = faults("models/big")
    assert newest.startswith("models/big/2: pad_values: big/x=many does not fit input 'x' of model big")
    assert one_before.startswith("models/big/1: pad_values: big/x=many")
    monkeypatch.setenv("FERRY_PAD_VALUE", "1")
    assert ferry("models").exit_code == 2


def test_a_signature_that_is_not_served_is_a_note(models: Path) -> None:
    make_tf1(models / "old" / "1")
    assert not faults("models/old")
    (note,) = notes("models/old")
    assert note.startswith("signature 'by_handle' of old/1 is left out")


# --- labels and versions by a list ---


def listing(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "models.config"
    file.write_text(f"model_config_list {{ {text} }}".replace("@", str(tmp_path / "models")))
    return file


LABELLED = """
config { name: "small" base_path: "@/small" }
config { name: "big" base_path: "@/big" model_version_policy { specific { versions: 1 } }
         version_labels { key: "stable" value: 1 } }
config { name: "reader" base_path: "@/read" }
"""


def test_a_label_is_that_of_the_list_or_of_the_newest_version(models: Path, tmp_path: Path) -> None:
    save(models / "big" / "2", lambda x: {"y": x * 10}, tf.int32)
    put(models / "read" / "3", CASCADE.replace("model: big,", 'model: "big:stable",'))
    (fault,) = faults("models/read")
    assert fault.endswith("x is float32 elsewhere, but should be int32 here")
    assert notes("models/read") == [
        "big:stable is taken for the newest version: labels come from the model config file of ferry-model-server"
    ]
    config = listing(tmp_path, LABELLED)
    result = ferry("models", "--model-config-file", config)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "reader version 3: models/read/3/pipeline.yaml" in result.stdout
    assert not faults("models/read", "--model-config-file", config)
    config = listing(tmp_path, LABELLED.replace("stable", "old"))
    assert faults("models/read", "--model-config-file", config) == [
        "models/read/3/pipeline.yaml: step 'big': model 'big' has no label 'stable', only 'old'"
    ]
    assert faults(tmp_path / "models" / "read", "--model-config-file", listing(tmp_path, "")) == [
        f"{models}/read: the list of models names none in it"
    ]


# --- wrong usage ---


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "ferry: there is no folder nowhere"),
        (["models/big/1/saved_model.pb"], "should be a folder, or a file of the name pipeline.yaml"),
        (["models", "--models", "nowhere"], "ferry: --models is 'nowhere', but should be a folder"),
        (["models", "--model-config-file", "nowhere"], "--model-config-file nowhere cannot be read: No such file"),
        (["models", "--model-config-file", "models/read/3/pipeline.yaml"], "Error parsing text-format"),
        (["models", "--models", "models", "--model-config-file", "c"], "should not be given both"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(models: Path, arguments: list[str], told: str) -> None:
    result = ferry(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_usage_of_flags_is_clicks(models: Path) -> None:
    assert ferry().exit_code == ferry("models", "--nothing").exit_code == 2


def test_a_folder_without_models_is_a_fault(models: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert faults("empty") == [
        "empty: it holds no model, which is <name>/<version>/saved_model.pb, or model.tflite or pipeline.yaml in its "
        "place"
    ]


# --- hostile files ---


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "it should have 'steps' and 'outputs'"),
        (b"a" * (1 << 20), "it should have at most 65536 bytes, but has more"),
        (bytes(range(256)), "it is no YAML: "),
        (b"\xff\xfe\x00", "it is no YAML: "),
        (b"[" * 60000, "it is no YAML: "),
        (b"a: &x [1]\nb: *x", "an alias (*name) is not supported"),
        (
            b'steps: {a: {model: "\\e]0;x\\a\\n\\n", inputs: {x: x}}}\noutputs: {y: a.y}',
            "there is no model '\\x1b]0;x\\x07",
        ),
        (
            b'steps: {a: {model: "../../models/small", inputs: {x: x}}}\noutputs: {y: a.y}',
            "there is no model '../../models/small'",
        ),
        (b'steps: {a: {model: small, inputs: {x: x}}}\noutputs: {"\\e[2J": a.z}', "output '\\x1b[2J'"),
    ],
)
def test_a_hostile_text_is_one_line(models: Path, text: bytes, told: str) -> None:
    put(models / "read" / "3", text)
    (fault,) = faults("models/read")
    assert fault.startswith("models/read/3/pipeline.yaml: ")
    assert told in fault
    assert fault.isprintable()


def test_a_file_that_cannot_be_read_is_one_line(models: Path) -> None:
    file = models / "read" / "3" / "pipeline.yaml"
    file.unlink()
    file.symlink_to("/proc/self/mem")  # even root cannot read its first byte
    assert faults("models/read") == ["models/read/3/pipeline.yaml: it cannot be read: Input/output error"]
    file.unlink()
    file.symlink_to(file)
    assert (
        faults("models/read")
        == faults("models/read/3")
        == ["models/read/3: it holds no saved_model.pb, model.tflite or pipeline.yaml"]
    )


def test_a_pipe_keeps_nobody_waiting(models: Path) -> None:
    index = models / "small" / "1" / "variables" / "variables.index"
    index.unlink()
    os.mkfifo(index)
    os.mkfifo(models / "read" / "3" / "pipe")
    assert faults("models") == [
        "models/read/3: pipe is no regular file",
        "models/small/1: variables/variables.index is no regular file",
    ]


def test_links_that_lead_back_end(models: Path) -> None:
    (models / "read" / "3" / "back").symlink_to(models)
    (models / "loop").mkdir()
    (models / "loop" / "1").symlink_to(models / "loop")
    assert faults("models") == ["models/loop/1: it holds no saved_model.pb, model.tflite or pipeline.yaml"]
    assert faults("models/loop") == ["models/loop/1: it holds no saved_model.pb, model.tflite or pipeline.yaml"]


def test_a_terminal_that_knows_only_ascii_is_served(models: Path) -> None:
    put(models / "read" / "3", CASCADE.replace("score:", "größe:"))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "app", "check", "models/read"], capture_output=True, env=environment, check=True
    )
    assert b"+>*   small = small" in done.stdout
    assert b"#   gr\\xf6\\xdfe <- small.score" in done.stdout
