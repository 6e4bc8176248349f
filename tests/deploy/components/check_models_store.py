"""The component models-store: its script, the real rclone and a real server, with a bucket or a web server as source.

`.ci/kubernetes` runs it, where requirements/deploy.txt is installed: `rclone` has to be on PATH.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.deploy.manifests import ROOT, environment, pod_specs
from tests.support.missing import skip_loudly
from tests.support.processes import ServerProcess, free_port, serving
from tests.support.savedmodels import make_half_plus_two
from tests.support.waiting import HANG_S, wait_until

SCRIPT = ROOT / "k8s/components/models-store/sync.sh"
NUMPY = ("-m", "tests.server.numpy_process")
SETTINGS = {"warm_up": False, "poll_interval_s": 0.05, "settle_s": 0.1}

#: Of rclone's server of S3, made up here.
KEY, SECRET = "the-key", "the-secret"


@pytest.fixture(scope="module", autouse=True)
def _rclone() -> None:
    if shutil.which("rclone") is None:
        skip_loudly("rclone is not installed: bringing models from buckets is NOT tried")


class Store:
    """What the component has beside Ferry: a remote, as its Secret describes it, and the folder that both mount."""

    def __init__(self, folder: Path, remote: Mapping[str, str], source: str) -> None:
        self.models = folder / "models"
        self.models.mkdir()
        lines = ["[store]", *(f"{name} = {value}" for name, value in remote.items())]
        (folder / "rclone.conf").write_text("\n".join(lines))
        own = {"SOURCE": source, "MODELS": str(self.models), "EVERY_S": "0.1"}
        self._environment = {**os.environ, **variables(), **own, "RCLONE_CONFIG": str(folder / "rclone.conf")}

    def bring(self) -> None:
        """The init container."""
        subprocess.run(["sh", SCRIPT, "once"], env=self._environment, check=True, timeout=HANG_S)

    @contextmanager
    def keep(self) -> Iterator[None]:
        """The sidecar; it has to end by SIGTERM."""
        process = subprocess.Popen(["sh", SCRIPT, "always"], env=self._environment)
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(HANG_S) == 0


def variables() -> dict[str, str]:
    """Those of the component's containers."""
    (spec,) = pod_specs([yaml.safe_load((SCRIPT.parent / "deployment.yaml").read_text())])
    return {name: str(value) for name, value in environment(spec["initContainers"][1]).items()}


@contextmanager
def served_by_rclone(protocol: str, folder: Path, *options: str) -> Iterator[int]:
    port = free_port()
    command = ["rclone", "serve", protocol, str(folder), "--addr", f"127.0.0.1:{port}", *options]
    process = subprocess.Popen([*command, "--vfs-cache-mode", "off", "--dir-cache-time", "0s"])
    try:
        wait_until(lambda: answers(port), f"rclone does not serve {protocol}")
        yield port
    finally:
        process.terminate()
        process.wait(HANG_S)


def answers(port: int) -> bool:
    with suppress(httpx.TransportError):
        return bool(httpx.get(f"http://127.0.0.1:{port}/").status_code)
    return False


@contextmanager
def bucket(folder: Path) -> Iterator[Store]:
    with served_by_rclone("s3", folder, "--auth-key", f"{KEY},{SECRET}") as port:
        remote = {"type": "s3", "provider": "Other", "endpoint": f"http://127.0.0.1:{port}"}
        keys = {"access_key_id": KEY, "secret_access_key": SECRET}
        yield Store(folder.parent, {**remote, **keys}, "store:bucket/models")


@contextmanager
def web_server(folder: Path) -> Iterator[Store]:
    with served_by_rclone("http", folder) as port:
        yield Store(folder.parent, {"type": "http", "url": f"http://127.0.0.1:{port}"}, "store:bucket/models")


def publish(versions: Path, number: int) -> None:
    """A version of the model in numpy: its graph is an empty file."""
    folder = versions / str(number)
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "variables.index").write_text(f"of {number}")
    (folder / "saved_model.pb").touch()


def available(server: ServerProcess, model: str) -> set[str]:
    reply = server.client.get(f"/v1/models/{model}")
    states = reply.json().get("model_version_status", [])
    return {each["version"] for each in states if each["state"] == "AVAILABLE"}


class Caller:
    """Asks all the time, and counts what it gets."""

    def __init__(self, server: ServerProcess, model: str, body: object) -> None:
        self.got: Counter[str] = Counter()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask, args=(server.url, f"/v1/models/{model}:predict", body))

    def _ask(self, url: str, path: str, body: object) -> None:
        with httpx.Client(base_url=url, timeout=HANG_S) as client:
            while not self._end.wait(0.005):
                reply = client.post(path, json=body)
                self.got[f"{reply.status_code} {reply.text}"] += 1

    def __enter__(self) -> Counter[str]:
        self._thread.start()
        return self.got

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join(HANG_S)


@pytest.mark.parametrize("source", [bucket, web_server])
def test_versions_come_and_go_with_the_source_and_no_caller_notices(
    source: Callable[[Path], Any], tmp_path: Path
) -> None:
    remote = tmp_path / "remote"
    versions = remote / "bucket/models/m"
    publish(versions, 1)
    with source(remote) as store:
        store.bring()
        with (
            serving(store.models, tmp_path / "log", NUMPY, **SETTINGS) as server,
            store.keep(),
            Caller(server, "m", {"instances": [[1.0, 2.0]]}) as got,
        ):
            # 1. A new version is brought, and served in place of the one before.
            publish(versions, 2)
            wait_until(lambda: available(server, "m") == {"2"})

            # 2. It goes, and the one before is served again.
            shutil.rmtree(versions / "2")
            wait_until(lambda: available(server, "m") == {"1"})

            # 3. One comes as the other goes.
            publish(versions, 3)
            shutil.rmtree(versions / "1")
            wait_until(lambda: available(server, "m") == {"3"})
            wait_until(lambda: not (store.models / "m/1").exists())
            assert sorted(path.name for path in (store.models / "m").iterdir()) == ["3"]

            # 4. A source with nothing in it is a mistake.
            shutil.rmtree(versions.parent)
            with pytest.raises(subprocess.CalledProcessError):
                store.bring()
            assert available(server, "m") == {"3"}
    assert set(got) == {'200 {"predictions":[[2.0,4.0]]}'}


class Slow(http.server.SimpleHTTPRequestHandler):
    """Sends the first half of the files that are held back, and the rest when it is let go."""

    held_back: dict[str, threading.Event]
    sent: list[str]

    def copyfile(self, source: Any, outputfile: Any) -> None:
        self.sent.append(self.path)
        content = source.read()
        held = next((each for name, each in self.held_back.items() if self.path.endswith(name)), None)
        outputfile.write(content[: len(content) // 2])
        if held is not None:
            outputfile.flush()
            held.wait(HANG_S)
        outputfile.write(content[len(content) // 2 :])

    def log_message(self, *said: object) -> None: ...


@contextmanager
def slow_web_server(folder: Path, *held_back: str) -> Iterator[tuple[Store, Mapping[str, threading.Event]]]:
    events = {name: threading.Event() for name in held_back}

    def made(*arguments: Any) -> Slow:
        return Slow(*arguments, directory=str(folder))

    Slow.held_back, Slow.sent = events, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        serves = threading.Thread(target=server.serve_forever)
        serves.start()
        try:
            yield (
                Store(folder.parent, {"type": "http", "url": f"http://127.0.0.1:{server.server_port}"}, "store:"),
                events,
            )
        finally:
            for each in events.values():
                each.set()
            server.shutdown()
            serves.join(HANG_S)


def is_on_its_way(file: Path) -> bool:
    return any(file.parent.glob(f"{file.name}*.partial"))


def test_a_version_that_is_half_here_is_not_served(tmp_path: Path) -> None:
    """Neither without a file that may be missing, however long that takes, nor with a half of its graph."""
    remote = tmp_path / "remote"
    make_half_plus_two(remote / "half/1")
    labels, graph = "/half/2/assets.extra/labels.txt", "/half/2/saved_model.pb"
    with slow_web_server(remote, labels, graph) as (store, held_back):
        store.bring()
        with (
            serving(store.models, tmp_path / "log", **SETTINGS) as server,
            store.keep(),
            Caller(server, "half", {"instances": [3.0]}) as got,
        ):
            shutil.copytree(remote / "half/1", tmp_path / "2")
            (tmp_path / "2/assets.extra").mkdir()
            (tmp_path / "2/assets.extra/labels.txt").write_text("one\ntwo\n")
            (tmp_path / "2").rename(remote / "half/2")
            for name in (labels, graph):
                half = store.models / name[1:]
                wait_until(partial(is_on_its_way, half))
                wait_until(lambda: "half version 2" in server.client.get("/health").text)  # and why it is held
                assert not half.exists()
                assert available(server, "half") == {"1"}
                assert (graph in Slow.sent) == (name == graph)
                held_back[name].set()
            wait_until(lambda: available(server, "half") == {"2"})
    assert set(got) == {'200 {"predictions":[3.5]}'}


def test_rclone_is_of_the_version_that_the_component_names() -> None:
    kustomization = yaml.safe_load((SCRIPT.parent / "kustomization.yaml").read_text())
    (image,) = kustomization["images"]
    said = subprocess.run(["rclone", "version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"rclone v{image['newTag']}\n")
