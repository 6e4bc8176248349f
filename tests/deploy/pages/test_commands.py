"""The commands on the pages for readers are run, and do what the pages say: all but those that are listed here."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from app.access.access_file import digest_of, read_access_file
from app.cli import app
from app.codecs.protobuf.messages import message_class
from tests.deploy.monitoring.prometheus import promtool
from tests.deploy.pages.commands import PAGES, Command, all_commands, asked, clone, commands, run, words
from tests.support.missing import skip_loudly
from tests.support.processes import ROOT, ServerProcess, free_port, serving
from tests.support.tensor_protos import encode_tensor

#: How commands begin that are run by other tests, which take them from the page, too.
ELSEWHERE = {
    "README.md: curl localhost:8501/v1/models/model:predict": "tests/importing/test_import_page.py",
    "README.md: ferry serve model.keras": "tests/importing/test_import_page.py",
    "docs/first-model.md": "tests/live/test_first_model_page.py",
    "docs/examples/cascade/README.md: curl ": "tests/examples/readme.py",
    "docs/examples/sentiment/README.md: curl ": "tests/examples/readme.py",
    "docs/examples/sentiment/README.md: python ": "tests/examples/test_sentiment.py",
    "docs/import.md": "tests/importing/test_import_page.py",
    "docs/scaling.md": "tests/cli/test_scaling_page.py",
    "docs/migrate-from-tensorflow-serving.md": "tests/model_server/test_cli.py",
    "docs/benchmark.md: python -m bench.gpu --dry-run": "tests/benchmark/gpu_parts/test_gpu.py",
    "docs/sharding.md": "tests/cli/test_shard.py",  # on two devices of a CPU
    "docs/traces.md": "tests/instrumentation/tracing/test_export.py",
}

#: How commands begin that are not run as they stand, and why.
NOT_RUN = {
    "docs/benchmark.md: python -m bench.run [": "it measures for an hour",
    "docs/benchmark.md: python -m bench.trees [": "it measures for a minute and misses goals on a busy machine",
    "docs/benchmark.md: python -m bench.gpu [": "it needs a GPU; tests/benchmark/gpu_parts/test_gpu.py runs it without",
}

#: Pages whose commands need the page's own settings, files or order: each has a test below.
OF_THEIR_OWN = ("docs/access.md", "docs/deploy.md", "docs/http-bodies.md")

#: What stands for what only a reader has.
GIVEN = {"/srv/models/mymodel": "models/digits", "/srv/models": "models", "my-models": "models"}

#: So that `ferry bench` ends at once.
SHORT = ("--seconds", "0.1", "--trials", "1", "--first-rate", "20", "--target-p99-ms", "100000")


def is_listed(command: Command) -> bool:
    return any(str(command).startswith(each) for each in (*ELSEWHERE, *NOT_RUN)) or command.page in OF_THEIR_OWN


COMMANDS = [command for command in all_commands() if not is_listed(command)]
CURL = [command for command in COMMANDS if command.program == "curl"]
FERRY = [command for command in COMMANDS if command.program == "ferry" and words(command)[0] != "serve"]
SERVE = next(command for command in COMMANDS if command.page == "README.md" and words(command)[0] == "serve")

#: Commands within sentences that name something of the repository.
INLINE = [
    Command(str(page.relative_to(ROOT)), "ferry", text)
    for page in PAGES
    for text in re.findall(r"`(ferry (?:check|inspect) (?:docs|models)/\S+)`", page.read_text(encoding="utf-8"))
]


def test_every_command_is_run_or_listed() -> None:
    of_server = [words(command, GIVEN) for command in (SERVE, *CURL, *FERRY)]
    assert [command for command in COMMANDS if words(command, GIVEN) not in of_server] == []
    of_ferry = {words(command)[0] for page in OF_THEIR_OWN for command in commands(page, "ferry")}
    assert of_ferry == {"serve", "key"}  # which the tests of these pages take


def test_what_is_listed_is_on_a_page_and_has_its_test() -> None:
    found = [str(command) for command in all_commands()]
    listed = (*ELSEWHERE, *NOT_RUN, *OF_THEIR_OWN)
    assert [each for each in listed if not any(one.startswith(each) for one in found)] == []
    assert [test for test in ELSEWHERE.values() if "commands(" not in (ROOT / test).read_text()] == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """As the README starts it. That options of batching can be changed is what their page asks for."""
    if shutil.which("curl") is None:
        skip_loudly("curl is not installed: its commands on the pages are NOT run")
    log = tmp_path_factory.mktemp("pages") / "log"
    with serving(ROOT / "models", log, ("-m", "app", *words(SERVE, GIVEN)), model_control="explicit") as server:
        yield server


@pytest.mark.parametrize("command", CURL, ids=str)
def test_curl_gets_what_the_page_shows(command: Command, server: ServerProcess, tmp_path: Path) -> None:
    output = asked(command, clone(tmp_path), {8501: server.port})
    if "readyz" in command.text:
        assert json.loads(output)["status"] == "ok"
    elif command.text.endswith("/v1/models/digits"):
        assert json.loads(output)["model_version_status"][0]["state"] == "AVAILABLE"
    elif "PATCH" in command.text:
        assert json.loads(output).items() >= {"max_batch_size": 32, "target_p99_ms": 50}.items()


def ferry(*arguments: str) -> str:
    """What the command prints."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def in_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has what a clone has."""
    monkeypatch.chdir(clone(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", FERRY + INLINE, ids=str)
def test_a_command_of_ferry_succeeds(command: Command, server: ServerProcess, in_clone: Path) -> None:
    sample = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"][0]
    (in_clone / "request.json").write_text(json.dumps({"instances": [{"image": sample["image"]}]}))
    here = dict.fromkeys(re.findall(r"http://\S+", command.text), f"{server.url}/v1/models/digits:predict")
    arguments = words(command, GIVEN | here)
    output = ferry(*arguments, *(SHORT if arguments[0] == "bench" else ()))
    assert output
    if "--picture" in arguments:
        assert (in_clone / "curve.svg").read_text().startswith("<svg")


def test_inspect_shows_the_table_of_the_readme(in_clone: Path) -> None:
    page = (ROOT / "README.md").read_text()
    (table,) = re.findall(r"^`ferry inspect models/digits`.*\n\n```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    def cells(text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines() if line.strip()]

    assert cells(ferry("inspect", "models/digits")) == cells(table)


def test_bodies_of_each_format_are_made_sent_and_read_as_their_page_says(server: ServerProcess, tmp_path: Path) -> None:
    folder = clone(tmp_path)

    def python(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)

    page = (ROOT / "docs/http-bodies.md").read_text()
    make, read, of_tensorflow_serving = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    # 1. The files. The last program needs a package that has an environment of its own.
    python(make)
    request = message_class("tensorflow.serving.PredictRequest")()
    encode_tensor(np.load(folder / "seven.npy"), request.inputs["image"], as_content=True)
    assert "seven.pb" in of_tensorflow_serving
    (folder / "seven.pb").write_bytes(request.SerializeToString())

    # 2. The requests.
    *_, stream, as_json = outputs = [
        asked(each, folder, {8501: server.port}) if each.program == "curl" else run(each, folder).output
        for each in commands("docs/http-bodies.md")
    ]
    assert len(outputs) == 8

    # 3. The answers.
    python(read)
    probabilities = json.loads(as_json)["outputs"]
    assert np.argmax(probabilities) == 7
    np.testing.assert_allclose(np.load(folder / "seven.out.npy"), probabilities, rtol=1e-4)
    np.testing.assert_allclose(np.load(folder / "seven.out.npz")["probabilities"], probabilities, rtol=1e-4)
    reply = message_class("tensorflow.serving.PredictResponse").FromString((folder / "seven.out.pb").read_bytes())
    np.testing.assert_allclose(
        np.frombuffer(reply.outputs["probabilities"].tensor_content, np.float32), probabilities[0], rtol=1e-4
    )
    predictions = [json.loads(line)["prediction"] for line in stream.splitlines()]
    labels = [each["label"] for each in json.loads((ROOT / "models/digits/samples.json").read_text())["samples"]]
    assert np.mean(np.argmax(predictions, 1) == labels) > 0.9


def test_the_python_client_is_used_as_its_page_says(server: ServerProcess) -> None:
    page = (ROOT / "docs/clients.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert "http://127.0.0.1:8501" in program
    found: dict[str, Any] = {}
    exec(program.replace("http://127.0.0.1:8501", server.url), found)  # noqa: S102 - what the page shows
    assert found["probabilities"].shape == (2, 10)


def test_a_key_is_made_used_and_sent_as_its_page_says(tmp_path: Path) -> None:
    new, serve, *requests = commands("docs/access.md")
    (key,) = keys_in(run(new, tmp_path).told)
    file = tmp_path / "access.yaml"
    started = ("-m", "app", *words(serve, {file.name: str(file)}))
    with serving(ROOT / "models", tmp_path / "log", started) as server:
        assert server.client.get("/v1/models/text").status_code == 401
        for request in requests:
            asked(request, tmp_path, {8501: server.port}, KEY=key)
        assert "`ferry bench URL --header x-api-key:KEY`" in (ROOT / "docs/access.md").read_text()
        ferry("bench", f"{server.url}/v1/models/text:predict", "--header", f"x-api-key:{key}", *SHORT)


@pytest.fixture(scope="module")
def protection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates, an access file and a key, as docs/deploy.md makes them."""
    if shutil.which("openssl") is None:
        skip_loudly("openssl is not installed: its commands on the pages are NOT run")
    folder: Path = tmp_path_factory.mktemp("protected") / "protection"
    folder.mkdir()
    for each in commands("docs/deploy.md", "openssl"):
        run(each, folder)
    told = [run(each, folder).told for each in commands("docs/deploy.md", "ferry") if words(each)[:2] == ["key", "new"]]
    for file, text in zip((folder.parent / "key of team-a", folder / "key"), told, strict=True):
        file.write_text(keys_in(text)[0])
    return folder


def test_the_access_file_of_the_page_has_both_keys(protection: Path) -> None:
    keys = read_access_file(protection / "access.yaml").keys
    found = {each.name: len(each.rules.permissions) for each in keys.values()}
    assert found == {"team-a": 2, "prometheus": 1}
    assert keys[digest_of((protection / "key").read_bytes())].name == "prometheus"


def test_certificates_are_used_as_the_pages_say(protection: Path, tmp_path: Path) -> None:
    _, serve = (each for each in commands("docs/deploy.md", "ferry") if words(each)[0] == "serve")
    operators = free_port()
    here = {each.name: str(each) for each in protection.iterdir()} | {"8510": str(operators)}
    context = ssl.create_default_context(cafile=str(protection / "ca.crt"))
    context.load_cert_chain(protection / "client.crt", protection / "client.key")
    started = ("-m", "app", *words(serve, here))
    with serving(ROOT / "models", tmp_path / "log", started, tls=context) as server:
        ports = {8501: server.port, 8510: operators}
        for each in commands("docs/deploy.md", "curl")[1:]:
            assert asked(each, protection, ports)
        log = server.log.read_text()
        assert f"HTTP on 127.0.0.1, port {server.port}, TLS\n" in log
        assert f"HTTP on 127.0.0.1, port {operators}, TLS, for operators\n" in log

        # What stands within sentences.
        runbook = (ROOT / "docs/runbook.md").read_text()
        assert "`openssl x509 -noout -enddate -in FILE`" in runbook
        ends = run(Command("", "openssl", "openssl x509 -noout -enddate -in tls.crt"), protection).output
        assert ends.startswith("notAfter=")
        assert "with TLS: curl --insecure https://localhost:8501/readyz; with mutual TLS on port 8510" in runbook
        readyz = asked(Command("", "curl", "curl --insecure https://localhost:8510/readyz"), tmp_path, ports)
        assert json.loads(readyz)["status"] == "ok"
        shown = "ferry bench https://... --ca ca.crt --certificate client.crt --key client.key"
        assert f"`{shown}`" in (ROOT / "docs/deploy.md").read_text()
        bench = words(Command("", "ferry", shown), {**here, "https://...": f"{server.url}/v1/models/text:predict"})
        ferry(*bench, *SHORT)


def test_a_look_with_tls_and_keys_is_as_its_page_says(protection: Path, tmp_path: Path) -> None:
    """As compose.yaml with compose/protected.yaml starts Ferry and Prometheus, which asks Ferry by the name `ferry`."""
    services = yaml.safe_load((ROOT / "compose/protected.yaml").read_text())["services"]
    given = services["ferry"]["environment"]
    settings = {name.removeprefix("FERRY_").lower(): protection.parent / path[1:] for name, path in given.items()}
    (tmp_path / "models/digits/1").mkdir(parents=True)
    (tmp_path / "models/digits/1/saved_model.pb").touch()
    context = ssl.create_default_context(cafile=str(protection / "ca.crt"))
    started = ("-m", "tests.server.numpy_process")
    with serving(tmp_path / "models", tmp_path / "log", started, tls=context, **settings) as server:
        assert server.client.get("/metrics").status_code == 401
        asking = commands("docs/deploy.md", "curl")[0]
        asked(asking, protection.parent, {8501: server.port}, KEY=(protection.parent / "key of team-a").read_text())

        # As Prometheus asks, which is known to take 5 s before it does. It calls the server `ferry`.
        scrapes = (ROOT / "compose/prometheus/protected.yaml").read_text().replace("/protection", str(protection))
        (tmp_path / "prometheus.yaml").write_text(scrapes)
        shutil.copy(ROOT / "compose/prometheus/rules.yaml", tmp_path)
        promtool("check", "config", str(tmp_path / "prometheus.yaml"))
        (job,) = yaml.safe_load(scrapes)["scrape_configs"]
        key = Path(job["authorization"]["credentials_file"]).read_text()
        with httpx.Client(verify=ssl.create_default_context(cafile=job["tls_config"]["ca_file"])) as client:
            page = client.get(
                f"{job['scheme']}://127.0.0.1:{server.port}/metrics",
                headers={"Authorization": f"Bearer {key}"},
                extensions={"sni_hostname": "ferry"},
            )
        assert "ferry_ready 1.0" in page.text


def keys_in(text: str) -> list[str]:
    return re.findall(r"\bferry_[\w-]+", text)
