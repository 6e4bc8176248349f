"""Wrong answers that no proof at load can see: shadow checks find the cause, and answers are right from then on."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from app.core.batch_sizes import MOST_DELAY_MS
from app.core.batching_explanation import SignatureExplanation
from tests.every_protocol.live import Live, live
from tests.instrumentation.pages import document_of
from tests.support.waiting import HANG_S

#: No trial and no probe has this value.
RARE = 777

REAL: dict[str, Any] = {
    "runtime": "tensorflow",
    "warm_up": True,
    "ready_when": "tuned",
    "max_batch_size": 2,
    "batches_in_flight": 1,
}


def make(path: Path, columns: int | None, call: Callable[[Any], Any]) -> None:
    """A model of x [batch, columns], int32."""
    module = tf.Module()
    module.call = tf.function(call, input_signature=[tf.TensorSpec([None, columns], tf.int32, name="x")])
    tf.saved_model.save(module, str(path), signatures=module.call)


def shifted(x: Any) -> Any:
    """x; in the place of RARE a shift by more bits than there are, which XLA computes otherwise than TensorFlow."""
    return {"y": tf.where(x == RARE, tf.bitwise.left_shift(tf.ones_like(x), x - RARE + 40), x)}


def total_or_mean(x: Any) -> Any:
    """The total of each row, which padding with 0 does not change; the mean of a row that holds RARE."""
    numbers = tf.cast(x, tf.float32)
    return {"y": tf.where(tf.reduce_any(x == RARE, 1), tf.reduce_mean(numbers, 1), tf.reduce_sum(numbers, 1))}


@asynccontextmanager
async def served(folder: Path, **more: Any) -> AsyncIterator[Live]:
    """A server that has so much room for checks as after hours of calls."""
    async with live(folder, **REAL, **more) as running:
        assert running.server.engine._batcher
        running.server.engine._batcher.state.slots.called_s = 1e6
        yield running


async def answers(running: Live, rows: Sequence[list[int]]) -> list[Any]:
    """To requests of one row each, sent at once."""
    sent = [running.http.post("/v1/models/real:predict", json={"instances": [row]}) for row in rows]
    return [reply.json()["predictions"][0] for reply in await asyncio.gather(*sent)]


async def asked_until_found(running: Live, result: str, rows: Sequence[list[int]]) -> None:
    """Asks until a check has had this result."""
    counted = re.compile(rf'^ferry_shadow_checks_total{{model="real",result="{result}",.*}} 1\.0$', re.MULTILINE)
    async with asyncio.timeout(HANG_S):
        while not counted.search((await running.server.metrics())[0].decode()):
            await answers(running, rows)


async def explanation(running: Live) -> tuple[SignatureExplanation, str]:
    """What the batching page says of the signature, and its advice."""
    page = (await running.http.get("/v1/models/real/batching")).json()
    return SignatureExplanation(**page["versions"][0]["signatures"][0]), " ".join(page["advice"])


def test_a_variant_that_answers_otherwise_is_not_used_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "real" / "1", 2, shifted)

    async def main() -> None:
        async with served(tmp_path, execution_variant="xla") as running:
            before = document_of(await running.server.summary())["variants"]["real/1"]["serving_default"]
            assert [(each["batch_size"], each["variant"]) for each in before] == [(1, "xla"), (2, "xla")]

            await asked_until_found(running, "variant", [[RARE, 3]])
            assert await answers(running, [[RARE, 3]]) == [[-(2**31), 3]], "as TensorFlow shifts"

            after = document_of(await running.server.summary())["variants"]["real/1"]["serving_default"]
            signature, advice = await explanation(running)
            page = (await running.server.metrics())[0].decode()
        plain = [{"batch_size": size, "variant": "plain", "speed_up": 1.0} for size in (1, 2)]
        assert after == [each.model_dump() for each in signature.variants] == plain
        assert 'variant="plain"' in page
        assert 'variant="xla"' not in page
        assert signature.shadow_checks["variant"] == 1
        assert "a check of answers found that its variant changed an answer" in advice

    asyncio.run(main())
    assert "its variant, which is not used any more: all batch sizes run plain" in caplog.text


def test_padding_that_changes_answers_is_not_used_any_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "real" / "1", None, total_or_mean)
    rows = [[RARE] + [1] * more for more in (8, 9)]
    right = [(RARE + more) / (1 + more) for more in (8, 9)]

    async def main() -> None:
        # A call waits for two requests: of any length in the bucket first, of one length afterwards.
        async with served(tmp_path, execution_variant="plain", max_batch_delay_ms=MOST_DELAY_MS) as running:
            before, _ = await explanation(running)
            assert before.shapes.shared

            await asked_until_found(running, "padding", 2 * rows)
            for row, answer in zip(rows, right, strict=True):
                assert await answers(running, [row, row]) == pytest.approx([answer, answer])

            after, advice = await explanation(running)
            summary = document_of(await running.server.summary())
        reason = "only equal shapes share a batch: a check of answers found that padding changes the answers"
        assert (after.shapes.shared, after.shapes.explanation) == (False, reason)
        assert summary["mixed_shapes"]["real/1"]["serving_default"] == reason
        assert after.shadow_checks["padding"] == 1
        assert "a check of answers found that its padding changed an answer" in advice

    asyncio.run(main())
    assert "its padding, which is not used any more: only equal shapes share a batch" in caplog.text
