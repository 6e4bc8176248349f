from pathlib import Path

import pytest

from bench.peers.descriptor import FOLDER, WrongDescriptor, find_peers, read_peer
from bench.support.forms import FORMS
from bench.support.workloads import WORKLOADS

RIGHT = 'title = "T"\nabout = "a"\ncommand = ["{python}"]\n'
PEERS = find_peers()


def test_every_folder_of_peers_is_found_and_ferry_comes_first() -> None:
    assert set(PEERS) == {file.parent.name for file in FOLDER.glob("*/peer.toml")}
    assert next(iter(PEERS)) == "ferry"
    assert {"mosec", "litserve", "bentoml", "ray_serve", "pytriton", "naive_fastapi", "tf_batching"} <= set(PEERS)
    assert {"bare_loop", "asgi_echo"} <= set(PEERS)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_is_whole(name: str) -> None:
    peer = PEERS[name]
    assert peer.about
    assert peer.distribution
    assert all(endpoint.form in FORMS for endpoint in peer.endpoints.values())
    assert peer.in_process or "json" in peer.endpoints
    assert set(peer.workloads) <= set(WORKLOADS)


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.requirements])
def test_requirements_are_pinned_with_ferrys_tensorflow_and_name_no_host(name: str) -> None:
    peer = PEERS[name]
    assert peer.requirements
    lines = [line for line in peer.requirements.read_text().splitlines() if line and line[0] != "#"]
    assert all("==" in line and "://" not in line for line in lines)
    assert any(line.startswith(f"{peer.distribution}==") for line in lines)
    locked = (FOLDER.parent.parent / "requirements" / "serve.txt").read_text()
    (tensorflow,) = [line for line in lines if line.startswith("tensorflow-cpu==")]
    assert tensorflow in locked


def made(folder: Path, text: str) -> Path:
    (folder / "peer.toml").write_text(text)
    return folder


def test_the_least_descriptor_is_a_loop_in_process(tmp_path: Path) -> None:
    peer = read_peer(made(tmp_path, RIGHT))
    assert peer.in_process
    assert peer.pausable
    assert peer.requirements is None
    assert peer.command == ("{python}",)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('title = "T"\nabout = "a"\n', "command"),
        (RIGHT + "colour = 1\n", "colour"),
        (RIGHT.replace('["{python}"]', '"{python}"'), "command"),
        (RIGHT + "[endpoints.smoke]\n", "endpoints.smoke"),
        (RIGHT + '[endpoints.json]\nform = "v1-json"\n', "endpoints.json.path"),
        (RIGHT + '[endpoints.json]\npath = "/"\nform = "f"\n', "endpoints.json.form"),
    ],
)
def test_a_wrong_descriptor_says_which_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(WrongDescriptor, match=key):
        read_peer(made(tmp_path, text))
