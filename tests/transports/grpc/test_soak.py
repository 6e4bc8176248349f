"""Clients of grpcio with deadlines and cancellations: none is sent away, and nothing stays in memory."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc

import grpc
import uvloop

from app.codecs.protobuf.messages import message_class
from app.transports.grpc.options import GrpcOptions
from tests.support.grpc_live import PREDICTION, Live, live, outputs_of, predict_request, rows
from tests.support.waiting import until

CHANNELS, CALLS, ROUNDS = 4, 8, 20


async def one(running: Live, channel: grpc.aio.Channel, chance: random.Random) -> str:
    """A call that is answered, runs out of time at once, or is cancelled; how it ended."""
    number, kind = chance.randrange(100), chance.randrange(4)
    request = predict_request({"x": rows(*[number] * chance.randrange(1, 4))}).SerializeToString()
    call = channel.unary_unary(f"/{PREDICTION}/Predict")(request, timeout=0.001 if kind == 0 else 60)
    if kind == 1:
        await asyncio.sleep(0)
        call.cancel()
    try:
        reply = await call
    except asyncio.CancelledError:
        assert kind == 1
        return "CANCELLED"
    except grpc.aio.AioRpcError as error:
        assert kind == 0
        return str(error.code().name)
    parsed = outputs_of(message_class("tensorflow.serving.PredictResponse").FromString(reply))["y"]
    assert parsed[0].tolist() == [2 * number] * 2
    return "OK"


def test_honest_clients_stay_connected_and_leave_nothing() -> None:
    async def main() -> int:
        chance = random.Random(1)  # noqa: S311 - for no secret
        kept = [0]
        async with live(options=GrpcOptions("127.0.0.1", 0)) as running:
            channels = [
                grpc.aio.insecure_channel(f"127.0.0.1:{running.server.port}", [("x", n)]) for n in range(CHANNELS)
            ]
            ended = set()
            for turn in range(ROUNDS):
                calls = [one(running, channel, chance) for channel in channels for _ in range(CALLS)]
                ended |= set(await asyncio.gather(*calls))
                await until(lambda: running.server.calls_under_way() == 0)
                running.events.clear()
                if turn in {2, ROUNDS - 1}:
                    gc.collect()
                    kept.append(tracemalloc.get_traced_memory()[0])
            assert ended == {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}
            for each in channels:
                assert each.get_state() is grpc.ChannelConnectivity.READY
                await each.close()
        return kept[-1] - kept[-2]

    tracemalloc.start()
    try:
        assert uvloop.run(main()) < 200_000
    finally:
        tracemalloc.stop()
