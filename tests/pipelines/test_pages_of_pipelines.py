"""What the pages of a server say of pipelines over real models."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tests.pipelines.test_real_models import CASCADE, put, save
from tests.support.processes import ARRANGEMENTS, serving

TREES = """
steps:
  nodes:
    model: cell
    inputs: {word: words}
    fold: {children: children, slots: [left, right], start: leaves, state: state}
outputs: {root: nodes.root}
"""


def save_cell(folder: Path) -> None:
    def spec(name: str, *shape: int) -> tf.TensorSpec:
        return tf.TensorSpec([None, *shape], tf.float32, name=name)

    module = tf.Module()
    module.join = tf.function(
        lambda word, left, right: {"state": left + right + word[:, None]},
        input_signature=[spec("word"), spec("left", 3), spec("right", 3)],
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.join})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save(folder / "small" / "1", lambda x: {"score": tf.reduce_sum(x, 1), "y": x + 1})
    save(folder / "big" / "1", lambda x: {"y": x * 10})
    save_cell(folder / "cell" / "1")
    put(folder / "cascade" / "3", CASCADE)
    put(folder / "trees" / "1", TREES)
    return folder


@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_a_pipeline_has_what_models_have_and_says_where_its_time_went(
    models: Path, tmp_path: Path, frontends: int
) -> None:
    with serving(
        models, tmp_path / "log", frontends=frontends, model_control="explicit", metrics_path="/prom"
    ) as server:
        client = server.client
        for _ in range(25):
            rows = {"instances": [[0, 1], [2, 2], [3, 3], [4, 4]]}
            client.post("/v1/models/cascade:predict", json=rows).raise_for_status()

        # 1. Metrics: Ferry's, and those by TensorFlow Serving's names.
        page = client.get("/prom").text
        labels = 'model="cascade",protocol="tensorflow_rest",signature="serving_default",version="3"'
        assert f'ferry_requests_total{{code="200",{labels}}} 25.0' in page
        step = 'pipeline="cascade",step="big",version="3"'
        assert 'ferry_pipeline_requests_total{outcome="answered",pipeline="cascade",version="3"} 25.0' in page
        assert f"ferry_pipeline_step_rows_total{{{step}}} 25.0" in page
        assert f"ferry_pipeline_step_compute_seconds_count{{{step}}} 25.0" in page
        assert ':tensorflow:serving:request_count{model_name="cascade",status="OK"} 25' in page
        assert ':tensorflow:serving:request_latency_count{entrypoint="REST",model_name="cascade"} 25.0' in page

        # 2. Statistics, metadata and configuration of the Open Inference Protocol.
        (stats,) = client.get("/v2/models/cascade/stats").json()["model_stats"]
        assert (stats["inference_count"], stats["execution_count"]) == (100, 25)
        assert [stats["inference_stats"][each]["count"] for each in ("success", "queue", "compute_infer")] == [25] * 3
        for path in ("/v2/models/cascade", "/v2/models/cascade/config"):
            assert client.get(path).json()["platform"] == "ferry_pipeline"
        assert client.get("/v2/models/small").json()["platform"] == "tensorflow_savedmodel"

        # 3. The batching page; there is nothing to change there.
        (version,) = client.get("/v1/models/cascade/batching").json()["versions"]
        small, big = version["pipeline"]["steps"]
        assert (small["row_share"], big["row_share"], big["condition"]) == (1.0, 0.25, ["small"])
        parts = [each["wait_share"] + each["compute_share"] for each in (small, big)]
        assert sum(parts) + version["pipeline"]["overhead_share"] == pytest.approx(1, rel=1e-2)
        (signature,) = version["signatures"]
        assert (signature["batched"], signature["alone"], signature["calls"]) == (None, "", 0)
        no_calls = "a pipeline has no calls of its own: see the pages of its models"
        assert signature["shapes"] == {"free": None, "shared": None, "explanation": no_calls}
        assert client.get("/v1/models/small/batching").json()["versions"][0]["pipeline"] is None
        tuned = client.patch("/v1/models/cascade/batching", json={"weight": 2})
        told = {"error": "Model cascade is a pipeline: its batches are those of its models"}
        assert (tuned.status_code, tuned.json()) == (400, told)


@pytest.mark.parametrize("frontends", ARRANGEMENTS.values(), ids=ARRANGEMENTS)
def test_trees_are_described_as_a_whole(models: Path, tmp_path: Path, frontends: int) -> None:
    """Their inputs have rows of different kinds: leaves, and nodes."""
    with serving(models, tmp_path / "log", frontends=frontends) as server:
        client = server.client
        body = client.get("/openapi.json").json()["paths"]["/v1/models/trees:predict"]["post"]["requestBody"]
        described = body["content"]["application/json"]
        assert [each["title"] for each in described["schema"]["anyOf"]] == ["trees serving_default columns"]
        assert not described["examples"]
        config = client.get("/v2/models/trees/config").json()
        assert config["max_batch_size"] == 0
        assert [each["dims"] for each in config["input"] if each["name"] == "children"] == [[-1, 2]]

        inputs = {"leaves": [[1, 1, 1], [2, 2, 2]], "words": [5], "children": [[0, 1]]}
        answer = client.post("/v1/models/trees:predict", json={"inputs": inputs})
        assert answer.json() == {"outputs": [[8, 8, 8]]}

        # 1. As one row its arrays have a dimension too many.
        rejected = client.post("/v1/models/trees:predict", json={"instances": [inputs]})
        assert rejected.status_code == 400
        assert rejected.json()["error"].endswith("(a request with trees has 'inputs', not 'instances')")

        # 2. What would be said of a model whose requests run alone is not said.
        (signature,) = client.get("/v1/models/trees/batching").json()["versions"][0]["signatures"]
        assert (signature["batched"], signature["alone"], signature["shapes"]["free"]) == (None, "", None)
