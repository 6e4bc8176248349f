"""TensorFlow Serving's own stubs against the drop-in start, its list of models changed by calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.official_clients.environment import CLIENTS, Answers, ask, require
from tests.support.processes import free_port, serving
from tests.support.savedmodels import make_half_plus_two


@pytest.fixture(scope="module")
def drop_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    require(CLIENTS)
    folder = tmp_path_factory.mktemp("drop_in")
    folders = {name: folder / name for name in ("half", "more")}
    for each in folders.values():
        make_half_plus_two(each / "1")
    listed = folder / "models.config"
    listed.write_text(
        f'model_config_list {{ config {{ name: "half" base_path: "{folders["half"]}" model_platform: "tensorflow" }} }}'
    )
    port = free_port()
    flags = (f"--port={port}", "--rest_api_port={port}", f"--model_config_file={listed}")
    with serving(folder, folder / "log", command=("-m", "app.model_server", *flags), model_control="explicit"):
        question = {"grpc": f"127.0.0.1:{port}", "folders": {name: str(path) for name, path in folders.items()}}
        yield ask("drop_in_stubs", question, folder)


def test_outputs_are_typed_fields(drop_in: Answers) -> None:
    assert drop_in["fields_of_the_reply"] == {"float_val": [2.5, 4.5], "content": 0}


def test_only_the_listed_models_are_served(drop_in: Answers) -> None:
    assert drop_in["rest_of_the_models"] == "NOT_FOUND"


def test_a_call_replaces_the_list_of_models(drop_in: Answers) -> None:
    seen = drop_in["after_reload"]
    assert seen["replies"] == [[0, ""], [0, ""]]
    assert [y.tolist() for y in seen["y"]] == [[2.5, 4.5]] * 2
    assert seen["gone"] == "NOT_FOUND"
    assert seen["available"] == [True]
