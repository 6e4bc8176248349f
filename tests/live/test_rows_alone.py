"""Models whose rows must not share calls, from the graph to the pages, over HTTP to a real model."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import InferenceRequest
from tests.every_protocol.live import Live, live
from tests.support import savedmodels
from tests.support.stream_client import connect


def make_batch_norm(path: Path) -> None:
    """x [batch, 2] -> y, normalised over the batch, and double, which is not."""
    module = tf.Module()

    def call(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [0])
        return {"y": (x - mean) * tf.math.rsqrt(variance + 1e-3), "double": 2.0 * x}

    module.call = tf.function(call, input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    tf.saved_model.save(module, str(path), signatures=module.call)


REAL: dict[str, Any] = {
    "runtime": "tensorflow",
    "warm_up": True,
    "ready_when": "tuned",  # all is proven before the first request, however slow the machine is
    "execution_variant": "plain",
    "max_batch_size": 8,
    "max_queue_size": 512,
}


async def predict(running: Live, **document: Any) -> Any:
    reply = await running.http.post("/v1/models/real:predict", json=document)
    assert reply.status_code == 200, reply.text
    return reply.json()["outputs"]


@pytest.mark.parametrize("frontends", [0, 2], ids=["one process", "frontends"])
def test_each_request_of_a_counter_is_one_execution(tmp_path: Path, frontends: int) -> None:
    """Nothing else counts: not warm-up, probes or measuring, not padding rows, not what shares a call."""
    savedmodels.make_counter(tmp_path / "real" / "1")

    async def main() -> None:
        async with live(tmp_path, frontends=frontends, **REAL) as running:
            first = await predict(running, inputs={"x": [1.0]})
            assert first["calls"] == [1]
            answers = await asyncio.gather(*[predict(running, inputs={"x": [1.0] * (n % 3 + 1)}) for n in range(59)])
            assert sorted(answer["calls"][0] for answer in answers) == list(range(2, 61))
            page = (await running.http.get("/v1/models/real/batching")).json()
            summary = (await running.http.get("/health")).json()
        reason = "each call writes state (AssignAddVariableOp)"
        (signature,) = page["versions"][0]["signatures"]
        assert (signature["batched"], signature["alone"]) == (False, reason)
        assert reason in " ".join(page["advice"])
        assert summary["row_independence"]["real/1"]["serving_default"] == f"each request runs alone: {reason}"

    asyncio.run(main())


@pytest.mark.parametrize("frontends", [0, 2], ids=["one process", "frontends"])
def test_a_model_that_normalises_over_the_batch_answers_each_request_as_alone(
    tmp_path: Path, frontends: int, caplog: pytest.LogCaptureFixture
) -> None:
    make_batch_norm(tmp_path / "real" / "1")
    sent = [np.random.default_rng(seed).normal(size=(seed % 4 + 1, 2)).astype(np.float32) for seed in range(64)]

    async def main() -> list[Any]:
        async with live(tmp_path, frontends=frontends, **REAL) as running:
            return await asyncio.gather(*[predict(running, inputs={"x": rows.tolist()}) for rows in sent])

    with caplog.at_level(logging.WARNING):
        answers = asyncio.run(main())
    for rows, answer in zip(sent, answers, strict=True):
        expected = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-3)
        np.testing.assert_allclose(answer["y"], expected, rtol=1e-4, atol=1e-5)
    reason = "output 'y': Mean 'moments/mean' in 'call' runs over the rows, axis 0 of its input"
    assert f"Model real version 1, signature 'serving_default': each request runs alone: {reason}" in caplog.text


def test_outputs_that_do_not_mix_rows_still_share_calls(tmp_path: Path) -> None:
    make_batch_norm(tmp_path / "real" / "1")

    async def main() -> None:
        async with live(tmp_path, **REAL) as running:
            model = running.server.repository.resolve("real")
            for outputs in (("double",), ("y",)):
                await model.infer(InferenceRequest({"x": np.ones((1, 2), np.float32)}, outputs=outputs))
            assert {key.outputs: function.batchable for key, function in model._placement.functions.items()} == {
                ("double",): True,
                ("y",): False,
            }

    asyncio.run(main())


def test_each_line_of_a_stream_is_a_request_of_its_own(tmp_path: Path) -> None:
    savedmodels.make_counter(tmp_path / "real" / "1")

    async def main() -> list[int]:
        async with (
            live(tmp_path, **REAL) as running,
            connect(str(running.http.base_url), "/v1/models/real:predictStream") as client,
        ):
            await client.head()
            client.say(1.0, 2.0, 3.0)
            client.stop()
            return [line["prediction"]["calls"] async for lines in client.replies() for line in lines]

    assert sorted(asyncio.run(main())) == [1, 2, 3]


def test_a_setting_lets_rows_share_calls_all_the_same(tmp_path: Path) -> None:
    savedmodels.make_counter(tmp_path / "real" / "1")

    async def main() -> int:
        async with live(tmp_path, **REAL, row_independence={"real": "assume"}) as running:
            return int((await predict(running, inputs={"x": [1.0]}))["calls"][0])

    assert asyncio.run(main()) > 1
