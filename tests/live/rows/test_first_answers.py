"""Rows that see each other at values which no probe tries: callers get right answers from the first request on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.every_protocol.live import live
from tests.live.test_rows_alone import REAL, predict


def make_zeros_see_all(path: Path) -> None:
    """x [batch, 2] -> y: a row's zeros are what the other rows hold there, in the opposite order."""
    module = tf.Module()

    def call(x: Any) -> Any:
        return {"y": tf.where(tf.equal(x, 0.0), tf.reverse(x, [0]), 2.0 * x)}

    module.call = tf.function(call, input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    tf.saved_model.save(module, str(path), signatures=module.call)


@pytest.mark.parametrize("frontends", [0, 2], ids=["one process", "frontends"])
def test_nobody_gets_a_wrong_answer_though_the_probe_saw_nothing(tmp_path: Path, frontends: int) -> None:
    make_zeros_see_all(tmp_path / "real" / "1")

    async def main() -> None:
        async with live(tmp_path, frontends=frontends, variant_cache=str(tmp_path / "cache"), **REAL) as running:
            summary = (await running.http.get("/health")).json()
            assert "proven by probe" in summary["row_independence"]["real/1"]["serving_default"]
            sent = [[[float(number % 3), 1.0 + number]] for number in range(60)]
            answers = await asyncio.gather(*[predict(running, inputs={"x": x}) for x in sent])
            assert answers == [[[2.0 * value for value in row] for row in x] for x in sent]
            (signature,) = (await running.http.get("/v1/models/real/batching")).json()["versions"][0]["signatures"]
            assert (signature["batched"], signature["proof"]) == (False, "")
            assert "a row's answer depends on the other rows" in signature["alone"]

    asyncio.run(main())
