"""The example of a cascade: what its README says, by the real server and by direct calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from docs.examples.cascade.train import PIPELINE, Served, cascade
from tests.examples.readme import EXAMPLES, MOST_BYTES, MOST_BYTES_IN_ALL, asked_as_shown, facts_of, percent, sizes
from tests.support.processes import ServerProcess, serving

EXAMPLE = EXAMPLES / "cascade"
FACTS = facts_of(EXAMPLE / "samples.json")
SAMPLES = FACTS["samples"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(EXAMPLE / "models", tmp_path_factory.mktemp("cascade") / "log") as server:
        yield server


def test_the_readme_shows_what_comes_back(server: ServerProcess) -> None:
    answer, shown = asked_as_shown(EXAMPLE, server)
    assert [row["digit"] for row in answer["predictions"]] == [row["digit"] for row in shown["predictions"]]
    got, expected = ([row["confidence"] for row in each["predictions"]] for each in (answer, shown))
    np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{each['label']}-{row}" for row, each in enumerate(SAMPLES)])
def test_an_image_is_read_by_the_net_that_the_threshold_names(server: ServerProcess, sample: dict[str, object]) -> None:
    of_small, of_big = Served().read([np.array(sample["image"], np.uint8)])
    by_big = bool(cascade(of_small, of_big, FACTS["threshold"])[1][0])
    direct = of_big if by_big else of_small

    reply = server.client.post("/v1/models/read:predict", json={"instances": [{"image": sample["image"]}]})
    (answer,) = reply.json()["predictions"]
    assert answer["digit"] == direct["digit"][0] == sample["label"]
    assert answer["confidence"] == pytest.approx(direct["confidence"][0], abs=1e-6)
    assert ("big;" in reply.headers["server-timing"]) == by_big == sample["asks_big"]


def test_rows_of_one_request_go_different_ways(server: ServerProcess) -> None:
    size = np.shape(SAMPLES[1]["image"])
    same = [each for each in SAMPLES if np.shape(each["image"]) == size]
    asked = sum(each["asks_big"] for each in same)
    assert 0 < asked < len(same)
    reply = server.client.post(
        "/v1/models/read:predict", json={"instances": [{"image": each["image"]} for each in same]}
    )
    assert [row["digit"] for row in reply.json()["predictions"]] == [each["label"] for each in same]
    (big,) = [each for each in reply.headers["server-timing"].split(", ") if each.startswith("big;")]
    assert big.endswith(f'batch {asked}"')


def test_the_readme_has_the_measured_numbers() -> None:
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for name in ("small_accuracy", "big_accuracy", "cascade_accuracy", "share_asked_big"):
        assert f"| {percent(FACTS[name])} |" in page, name
    assert f"of {FACTS['held_out_count']} digits" in page
    assert f"confidence < {FACTS['threshold']}" in page
    assert f"confidence < {FACTS['threshold']}" in PIPELINE.read_text()
    assert FACTS["small_accuracy"] + 0.01 < FACTS["cascade_accuracy"]
    assert FACTS["share_asked_big"] < 0.3


def test_the_models_are_small() -> None:
    assert max(sizes(EXAMPLE)) < MOST_BYTES
    assert sum(sizes(EXAMPLE)) < MOST_BYTES_IN_ALL
