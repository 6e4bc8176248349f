"""gRPC load: callers that send their next request when the last was answered, by TensorFlow Serving's protocol or V2.

    python bench/load/grpc_load.py 127.0.0.1:8500 digits image 8,8 [--protocol v2] [--callers 64] [--seconds 10]

Input NAME of SHAPE (one row, float32) is filled with random numbers. Needs Ferry's own environment.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from typing import Any

import grpc
import numpy as np

from app.bench.open_loop import percentile
from app.codecs.protobuf.messages import message_class
from tests.support.tensor_protos import encode_tensor

METHODS = {
    "tensorflow": "/tensorflow.serving.PredictionService/Predict",
    "v2": "/inference.GRPCInferenceService/ModelInfer",
}


def tensorflow_request(model: str, name: str, row: np.ndarray[Any, Any]) -> bytes:
    request = message_class("tensorflow.serving.PredictRequest")()
    request.model_spec.name = model
    encode_tensor(row, request.inputs[name], as_content=True)
    content: bytes = request.SerializeToString()
    return content


def v2_request(model: str, name: str, row: np.ndarray[Any, Any]) -> bytes:
    request = message_class("inference.ModelInferRequest")()
    request.model_name = model
    request.inputs.add(name=name, datatype="FP32", shape=row.shape)
    request.raw_input_contents.append(row.tobytes())
    content: bytes = request.SerializeToString()
    return content


async def load(options: argparse.Namespace) -> None:
    shape = (1, *(int(size) for size in options.shape.split(",") if size))
    row = np.random.default_rng(0).random(shape, np.float32)
    write = tensorflow_request if options.protocol == "tensorflow" else v2_request
    content = write(options.model, options.input, row)
    latencies: list[float] = []
    failures: Counter[str] = Counter()
    async with grpc.aio.insecure_channel(options.target) as channel:
        call = channel.unary_unary(METHODS[options.protocol])
        await call(content, wait_for_ready=True, timeout=30)
        end = time.perf_counter() + options.seconds

        async def caller() -> None:
            while (before := time.perf_counter()) < end:
                try:
                    await call(content, timeout=30)
                    latencies.append(time.perf_counter() - before)
                except grpc.aio.AioRpcError as error:
                    failures[f"{error.code().name}: {error.details()}"] += 1

        await asyncio.gather(*[caller() for _ in range(options.callers)])
    latencies.sort()
    p50, p99 = (1e3 * percentile(latencies, q) for q in (0.5, 0.99))
    rate = len(latencies) / options.seconds
    print(f"{rate:,.0f} requests/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms, {failures.total()} failed")
    for text, count in failures.most_common(3):
        print(f"  {count} x {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("model")
    parser.add_argument("input")
    parser.add_argument("shape", help="of one row, by commas")
    parser.add_argument("--protocol", choices=METHODS, default="tensorflow")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    asyncio.run(load(parser.parse_args()))


if __name__ == "__main__":
    main()
