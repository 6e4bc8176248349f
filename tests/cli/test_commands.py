import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from app import __version__
from app.cli import app, main
from app.cli.models import find_version
from app.codecs.input_files import is_numpy_file, read_numpy_file
from app.config.settings import PREFIX, Settings
from app.config.sources import flag_of
from app.core.errors import InvalidRequest, ModelNotFound
from app.core.inference import STRING, ModelSignature, TensorSpec
from tests.repository.fakes import add
from tests.support.savedmodels import make_several_inputs, make_several_signatures

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
DIGITS = MODELS / "digits"
SAMPLES = json.loads((DIGITS / "samples.json").read_text())["samples"]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


def ferry(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def answer(*arguments: object, stdin: bytes | None = None) -> Any:
    result = ferry("predict", *arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def one_line(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr.rstrip("\n")


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**named: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **named)
    return file.getvalue()


@pytest.fixture(scope="module")
def several_signatures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "several" / "1"
    make_several_signatures(path)
    return path


@pytest.fixture(scope="module")
def several_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "inputs" / "1"
    make_several_inputs(path)
    return path


# --- ferry ---


def test_the_version_is_told() -> None:
    assert ferry("--version").stdout == f"ferry {__version__}\n"


def test_the_console_script_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/anything", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: ferry [OPTIONS] COMMAND")


def test_python_m_app_is_the_command_and_help_imports_nothing_heavy() -> None:
    code = "import sys, runpy\nsys.argv = ['ferry', '--help']\ntry: runpy.run_module('app', run_name='__main__')\n"
    code += "finally: print({'tensorflow', 'numpy', 'fastapi', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage: ferry [OPTIONS] COMMAND" in done.stdout
    assert done.stdout.endswith("set()\n")


# --- ferry serve ---


def test_every_setting_is_a_flag_with_its_description() -> None:
    shown = " ".join(ferry("serve", "--help").stdout.split()).replace("- ", "-")
    for name, field in Settings.model_fields.items():
        assert f"{flag_of(name)} " in shown
        assert str(field.description).replace("- ", "-") in shown
    assert "--no-warm-up" in shown
    assert "debug|info|warning|error" in shown


def test_flags_and_file_reach_the_server_and_its_code_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Settings] = []

    def serve(settings: Settings) -> int:
        served.append(settings)
        return 3

    monkeypatch.setattr("app.server.single_process.serve", serve)
    config = tmp_path / "ferry.yaml"
    config.write_text("host: from.file\nrest_port: 1\n")
    flags = ["--rest-port", "0", "--no-warm-up", "--batch-sizes", "1,64", "--models", "m", "--log-level", "debug"]
    assert ferry("serve", "--config", config, *flags).exit_code == 3
    assert served == [
        Settings(
            host="from.file",
            rest_port=0,
            warm_up=False,
            batch_sizes=[1, 64],
            models=Path("m"),
            log_level="debug",
        )
    ]


def test_a_wrong_setting_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = ferry("serve", "--max-batch-size", "0")
    assert one_line(rejected, 2) == "ferry: --max-batch-size is '0', but should be greater than 0"
    monkeypatch.setenv("FERRY_MAX_BATCHSIZE", "8")
    rejected = ferry("serve")
    assert one_line(rejected, 2) == (
        "ferry: FERRY_MAX_BATCHSIZE is not a setting of Ferry; did you mean FERRY_MAX_BATCH_SIZE?"
    )


# --- which model ---


def test_a_model_is_a_version_folder_a_model_folder_or_a_name(tmp_path: Path) -> None:
    old, new = add(tmp_path, "m", 9), add(tmp_path, "m", 10)
    assert find_version(str(old), tmp_path) == old
    assert find_version(str(tmp_path / "m"), Path("nowhere")) == new
    assert find_version("m", tmp_path) == new


def test_a_folder_that_only_shares_the_name_does_not_hide_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir()
    new = add(tmp_path / "models", "m", 1)
    monkeypatch.chdir(tmp_path)
    assert find_version("m", Path("models")).absolute() == new


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"^No model at nothing and none of that name in "):
        find_version("nothing", tmp_path)
    rejected = ferry("inspect", "nothing", "--models", tmp_path)
    assert one_line(rejected, 1) == f"ferry: No model at nothing and none of that name in {tmp_path}"


# --- ferry inspect ---


def test_inspect_shows_every_signature(several_signatures: Path) -> None:
    shown = ferry("inspect", several_signatures)
    assert shown.exit_code == 0
    path, *lines = [" ".join(line.split()) for line in shown.stdout.splitlines() if line.strip(" ─")]
    assert path == str(several_signatures)
    assert lines[0] == "signature method name dtype shape batchable"
    assert "join tensorflow/serving/predict in words string [?] no" in lines
    assert "out text string []" in lines
    assert "double tensorflow/serving/predict in x float32 [?] yes" in lines
    assert len(lines) == 1 + 2 * 3


def test_inspect_takes_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_MODELS", str(MODELS))
    assert "probabilities" in ferry("inspect", "digits").stdout


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    broken = add(tmp_path, "m", 1, b"broken")
    assert one_line(ferry("inspect", broken), 1).startswith("ferry: m/1 cannot be loaded: ")


# --- ferry predict ---


@pytest.mark.parametrize("more", [[], ["-"]])
def test_whoever_names_a_pipeline_is_told_what_shows_it(tmp_path: Path, more: list[str]) -> None:
    folder = tmp_path / "read" / "1"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text("steps: {}")
    for named in (folder, folder.parent):
        assert one_line(ferry("predict" if more else "inspect", named, *more), 1) == (
            f"ferry: read/1 is a pipeline: 'ferry check {folder}' shows its inputs and outputs; to ask it, start "
            "'ferry serve'"
        )


def test_predict_reads_rows_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"instances": [sample["image"] for sample in SAMPLES]}))
    labels = np.argmax(answer(DIGITS, file)["predictions"], axis=1)
    assert np.mean(labels == [sample["label"] for sample in SAMPLES]) > 0.9


def test_predict_reads_columns_from_stdin() -> None:
    body = json.dumps({"inputs": {"image": [SAMPLES[0]["image"]]}}).encode()
    assert len(answer("digits", "-", "--models", MODELS, stdin=body)["outputs"][0]) == 10


def test_predict_reads_npy() -> None:
    image = np.array([SAMPLES[0]["image"]])
    assert image.dtype == np.int64
    predictions = answer(DIGITS / "1", "-", stdin=npy(image))["predictions"]
    assert np.argmax(predictions[0]) == SAMPLES[0]["label"]


def test_predict_reads_npz(several_inputs: Path, tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    file.write_bytes(npz(a=np.array([[1.0, 2.0]]), b=np.array([[3.0, 4.0]])))
    assert answer(several_inputs, file) == {"predictions": [{"sum": [4.0, 6.0], "product": [3.0, 8.0]}]}


def test_predict_calls_the_signature_asked_for(several_signatures: Path) -> None:
    body = b'{"signature_name": "double", "instances": [3.0]}'
    assert answer(several_signatures, "-", stdin=body) == {"predictions": [6.0]}
    assert answer(several_signatures, "-", "--signature", "double", stdin=npy(np.array([3.0]))) == {
        "predictions": [6.0]
    }
    words = npy(np.array(["né", "e"]))
    assert answer(several_signatures, "-", "--signature", "join", stdin=words) == {"outputs": "née"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "JSON Parse error"),
        (b'{"instances": [1.0]}', "Input 'image' has shape [1]; expected [?,8,8]"),
        (b'{"signature_name": "x", "instances": [1]}', "The model has no signature 'x'; it has "),
        (npz(picture=np.zeros((1, 8, 8))), "missing 'image'; unknown 'picture'; expected 'image'"),
        (npy(np.array(["a"])), "Input 'image' has dtype str"),
    ],
)
def test_a_wrong_input_is_one_line(body: bytes, text: str) -> None:
    assert text in one_line(ferry("predict", DIGITS, "-", stdin=body), 1)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in one_line(ferry("predict", DIGITS, tmp_path / "no.json"), 1)


# --- numpy's files ---


def signature(**inputs: str) -> ModelSignature:
    dtypes = {"string": STRING}
    specs = {name: TensorSpec(name, dtypes.get(kind) or np.dtype(kind), (None,)) for name, kind in inputs.items()}
    return ModelSignature("serving_default", specs, {})


def rejected(body: bytes, model: ModelSignature) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_numpy_file(body, model)
    return str(caught.value)


def test_numbers_are_cast_where_nothing_but_precision_is_lost() -> None:
    read = read_numpy_file(npz(i=np.array([7]), f=np.array([0.1])), signature(i="int8", f="float32"))
    assert {name: array.dtype.name for name, array in read.items()} == {"i": "int8", "f": "float32"}
    assert read["f"][0] == np.float32(0.1)
    assert rejected(npy(np.array([300])), signature(i="int8")) == "Input 'i' holds numbers that int8 cannot"
    assert rejected(npy(np.array([0.5])), signature(i="int8")) == "Input 'i' has dtype float64; expected int8[?]"


def test_strings_become_bytes() -> None:
    for array in (np.array(["é"]), np.array(["é".encode()])):
        read = read_numpy_file(npy(array), signature(text="string"))
        assert read["text"].dtype == STRING
        assert read["text"].tolist() == ["é".encode()]
    assert rejected(npy(np.array([1])), signature(text="string")) == "Input 'text' has dtype int64; expected string[?]"


def test_one_array_is_no_choice_of_several_inputs() -> None:
    expected = "A .npy file holds one input; signature 'serving_default' needs .npz with a, b"
    assert rejected(npy(np.array([1])), signature(a="int8", b="int8")) == expected


@pytest.mark.parametrize(
    "body",
    [npy(np.array([1]))[:20], b"PK\x03\x04", npy(np.array([1, "x"], dtype=object)), npz(a=np.array([None]))],
)
def test_a_broken_file_or_one_of_python_objects_is_rejected(body: bytes) -> None:
    assert is_numpy_file(body)
    assert rejected(body, signature(a="int8")).startswith("The file of arrays cannot be read: ")
