"""What gRPC answers a second, beside the same model's JSON, by one server.

    python -m bench.grpc_rates [--rounds 5] [--seconds 2] [--json FILE]

Predict of the benchmark's tiny MLP with h2load (Debian: nghttp2-client) at 32 connections x 4 streams, 8 x 8 and 1 x 1,
JSON on the same connections and streams, and with as many requests under way by h2load's HTTP/1.1; grpcio's clients in
4 processes; and messages of 1 MB. Prints medians and the ratios of rounds. Server and clients share the machine's
cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from app.codecs.protobuf.messages import message_class
from bench.models import ensure_models, saved_model
from bench.support.live_server import live_process
from tests.support.processes import free_port
from tests.support.tensor_protos import encode_tensor

PREDICT = "/tensorflow.serving.PredictionService/Predict"
SHAPES = ((32, 4), (8, 8), (1, 1))
CLIENTS, CALLERS = 4, 16

#: Seconds of a round in which a client warms up.
_WARM_UP_S = 0.5


def predict_request(model: str, name: str, array: np.ndarray[Any, Any]) -> bytes:
    request = message_class("tensorflow.serving.PredictRequest")()
    request.model_spec.name = model
    encode_tensor(array, request.inputs[name], as_content=True)
    content: bytes = request.SerializeToString()
    return content


_PREFIX_BYTES = 5


def length_prefixed(message: bytes) -> bytes:
    """What a call sends. Source: gRPC over HTTP/2, Length-Prefixed-Message."""
    return b"\0" + len(message).to_bytes(4, "big") + message


# --- load ---


def h2load(url: str, body: Path, kind: str, seconds: float, *more: str) -> float:
    """Answers with success a second."""
    command = [
        "h2load",
        "-t1",
        f"-D{seconds * 1e3:.0f}ms",
        f"--warm-up-time={_WARM_UP_S * 1e3:.0f}ms",
        "-H",
        f"content-type: {kind}",
        *more,
    ]
    output = subprocess.run([*command, "-d", str(body), url], capture_output=True, text=True, check=True).stdout
    done = re.search(r"requests: .* (\d+) succeeded, (\d+) failed", output)
    assert done, output
    assert int(done[1]), output
    assert not int(done[2]), output
    return int(done[1]) / seconds


def grpc_load(port: int, body: Path, shape: tuple[int, int], seconds: float) -> float:
    """Raises grpc.RpcError: the first call fails. h2load counts a call as a success whatever its grpc-status."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        channel.unary_unary(PREDICT)(body.read_bytes()[_PREFIX_BYTES:])
    more = (f"-c{shape[0]}", f"-m{shape[1]}", "-H", "te: trailers")
    return h2load(f"http://127.0.0.1:{port}{PREDICT}", body, "application/grpc", seconds, *more)


def json_load(port: int, body: Path, shape: tuple[int, int], seconds: float) -> float:
    """HTTP/1.1: as many connections as there are streams."""
    more = ("--h1", f"-c{shape[0] * shape[1]}", "-m1")
    return h2load(f"http://127.0.0.1:{port}/v1/models/mlp:predict", body, "application/json", seconds, *more)


def json_load_http2(port: int, body: Path, shape: tuple[int, int], seconds: float) -> float:
    more = (f"-c{shape[0]}", f"-m{shape[1]}")
    return h2load(f"http://127.0.0.1:{port}/v1/models/mlp:predict", body, "application/json", seconds, *more)


def _client(port: int, content: bytes, callers: int, seconds: float, counts: Any, *, headers: bool) -> None:
    import asyncio  # noqa: PLC0415 - of the client's process

    import uvloop  # noqa: PLC0415 - likewise

    async def main() -> int:
        done = 0
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        ) as channel:
            call = channel.unary_unary(PREDICT)
            await call(content, wait_for_ready=True)
            end = time.monotonic() + seconds

            async def caller() -> None:
                nonlocal done
                while time.monotonic() < end:
                    own = (("traceparent", f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"),) if headers else ()
                    await call(content, metadata=own)
                    done += 1

            await asyncio.gather(*[caller() for _ in range(callers)])
        return done

    counts.put(uvloop.run(main()))


def real_clients(
    port: int, content: bytes, seconds: float, *, clients: int = CLIENTS, callers: int = CALLERS, headers: bool = False
) -> float:
    """grpcio's clients, each in a process; calls a second."""
    spawn = multiprocessing.get_context("spawn")
    counts: Any = spawn.Queue()
    made = [
        spawn.Process(target=_client, args=(port, content, callers, seconds, counts), kwargs={"headers": headers})
        for _ in range(clients)
    ]
    for each in made:
        each.start()
    total = sum(counts.get(timeout=15 + seconds) for _ in made)
    for each in made:
        each.join()
    return total / seconds


# --- the server ---


def models_in(folder: Path) -> Path:
    """The tiny MLP, and a model that takes images of 110 KB."""
    folder.mkdir()
    for name in ("mlp", "thumbnail"):
        (folder / name).symlink_to(saved_model(name).parent)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if shutil.which("h2load") is None:
        parser.error("h2load is not there: apt-get install nghttp2-client")
    results = run(options.rounds, options.seconds)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def run(rounds: int, seconds: float) -> dict[str, Any]:
    row = np.random.default_rng(0).random((1, 16), np.float32)
    large = np.random.default_rng(0).random((9, 96, 96, 3), np.float32)
    results: dict[str, Any] = {}
    ensure_models()
    grpc_port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        live_process(models=models_in(Path(folder) / "models"), grpc_port=grpc_port) as (port, _),
    ):
        message, text = Path(folder) / "message", Path(folder) / "json"
        content = predict_request("mlp", "x", row)
        message.write_bytes(length_prefixed(content))
        text.write_text(json.dumps({"instances": row.tolist()}))
        ways: dict[str, dict[str, Callable[[], float]]] = {}
        for shape in SHAPES:
            name = f"h2load {shape[0]}x{shape[1]}"
            ways[name] = {
                "gRPC": lambda shape=shape: grpc_load(grpc_port, message, shape, seconds),
                "json, HTTP/2": lambda shape=shape: json_load_http2(port, text, shape, seconds),
                "json": lambda shape=shape: json_load(port, text, shape, seconds),
            }
        for name, headers in (("grpcio", False), ("grpcio, own traceparent", True)):
            ways[name] = {"gRPC": lambda headers=headers: real_clients(grpc_port, content, seconds, headers=headers)}
        longer = predict_request("thumbnail", "image", large)
        ways["1 MB"] = {"gRPC": lambda: real_clients(grpc_port, longer, seconds, clients=1, callers=2)}
        for name, by_way in ways.items():
            results[name] = measure(name, by_way, rounds)
    return results


def measure(name: str, ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run_it in ways.items():
            rates[way].append(run_it())
    medians = {way: statistics.median(each) for way, each in rates.items()}
    ratios = [f"gRPC / {way} {medians['gRPC'] / medians[way]:.2f}" for way in medians if way != "gRPC"]
    print(f"{name:24}", ", ".join([*(f"{way} {rate:,.0f}/s" for way, rate in medians.items()), *ratios]), flush=True)
    return rates


if __name__ == "__main__":
    main()
