"""What Ferry's gRPC costs beside a bare grpc.aio server that echoes the same messages, measured in turn.

    python -m bench.grpc_overhead [--seconds 3] [--rounds 3] [--callers 64] [--clients 2] [--delay-ms 0]

Prints the ratio of requests a second, and of CPU time a request in the server's process (which does not
depend on how fast the clients are), as medians over the rounds; and how fast a 1 MB tensor is decoded and encoded.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.predict_request import serialize_response
from app.codecs.protobuf.tensor_protos import decode_tensor
from app.core.inference import InferenceResponse
from bench.support.live_server import cpu_seconds
from tests.support.tensor_protos import encode_tensor

METHOD = "/tensorflow.serving.PredictionService/Predict"
Request = message_class("tensorflow.serving.PredictRequest")
Response = message_class("tensorflow.serving.PredictResponse")
SMALL = np.ones(1, np.float32)  # one row


def request_bytes() -> bytes:
    request = Request()
    request.model_spec.name = "half_plus_two"
    encode_tensor(SMALL, request.inputs["x"], as_content=True)
    content: bytes = request.SerializeToString()
    return content


# --- the servers, each in a process of its own ---


def echo(started: Any) -> None:
    """Parses the request and writes a reply like Ferry's, and nothing else."""
    import uvloop  # noqa: PLC0415 - both servers run on it

    reply = Response()
    reply.model_spec.name, reply.model_spec.version.value = "half_plus_two", 1
    reply.model_spec.signature_name = "serving_default"
    encode_tensor(SMALL, reply.outputs["y"], as_content=True)

    async def predict(request: Any, context: Any) -> Any:  # noqa: ARG001 - gRPC's signature
        return reply

    async def main() -> None:
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(predict, Request.FromString, Response.SerializeToString)
        service, method = METHOD[1:].split("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        started.send((port, os.getpid()))
        await server.wait_for_termination()

    uvloop.run(main())


def ferry(started: Any, models: Path, delay_ms: float) -> None:
    """Ferry as `ferry serve` runs it, but for HTTP."""
    import uvloop  # noqa: PLC0415 - as above

    from app.config.settings import Settings  # noqa: PLC0415 - as above
    from app.server.server import Server  # noqa: PLC0415 - TensorFlow, in this process only

    async def main() -> None:
        server = Server(
            Settings(host="127.0.0.1", grpc_port=0, models=models, max_batch_delay_ms=delay_ms, ready_when="tuned")
        )
        await server.start()
        while server.unready():  # noqa: ASYNC110 - readiness is a question, not an event
            await asyncio.sleep(0.05)
        started.send((server.grpc.port, os.getpid()))
        await asyncio.Event().wait()

    uvloop.run(main())


# --- the load ---


def load(port: int, callers: int, seconds: float, counts: Any) -> None:
    import uvloop  # noqa: PLC0415 - as above

    async def main() -> int:
        content = request_bytes()
        done = 0
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(METHOD)
            await call(content, wait_for_ready=True)
            end = time.monotonic() + seconds

            async def caller() -> None:
                nonlocal done
                while time.monotonic() < end:
                    await call(content)
                    done += 1

            await asyncio.gather(*[caller() for _ in range(callers)])
        return done

    counts.put(uvloop.run(main()))


def measure(port: int, pid: int, options: argparse.Namespace) -> tuple[float, float]:
    """Requests a second, and the server's CPU microseconds a request."""
    counts: Any = multiprocessing.get_context("spawn").Queue()
    clients = [
        multiprocessing.get_context("spawn").Process(
            target=load, args=(port, options.callers // options.clients, options.seconds, counts)
        )
        for _ in range(options.clients)
    ]
    before = cpu_seconds(pid)
    for client in clients:
        client.start()
    total = sum(counts.get(timeout=60 + options.seconds) for _ in clients)
    for client in clients:
        client.join()
    return total / options.seconds, (cpu_seconds(pid) - before) / total * 1e6


def compare(options: argparse.Namespace, models: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    servers: dict[str, tuple[int, int]] = {}
    processes = []
    for name, target, arguments in (("echo", echo, ()), ("ferry", ferry, (models, options.delay_ms))):
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=target, args=(theirs, *arguments), daemon=True)
        process.start()
        processes.append(process)
        servers[name] = ours.recv()
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    for _ in range(options.rounds):
        for name, (port, pid) in servers.items():
            rounds[name].append(measure(port, pid, options))
    for process in processes:
        process.terminate()
    rates = {name: statistics.median(rate for rate, _ in each) for name, each in rounds.items()}
    cpus = {name: statistics.median(cpu for _, cpu in each) for name, each in rounds.items()}
    for name in rounds:
        print(f"{name:6} {rates[name]:8.0f} requests/s {cpus[name]:8.0f} us CPU a request")
    print(f"ratio of requests/s {rates['ferry'] / rates['echo']:.2f}")
    print(f"ratio of CPU        {cpus['echo'] / cpus['ferry']:.2f}")


# --- tensors ---


def throughput(megabytes: float = 1.0) -> None:
    """From the bytes of a request to arrays, and from arrays to the bytes of a reply."""
    array = np.random.default_rng(0).random(int(megabytes * 1e6 / 4), np.float32)
    response = InferenceResponse({"y": array}, "m", 1, "s")
    for as_content in (True, False):
        request = Request()
        encode_tensor(array, request.inputs["x"], as_content)
        content = request.SerializeToString()

        def decode(content: bytes = content) -> None:
            for name, proto in Request.FromString(content).inputs.items():
                decode_tensor(name, proto, 1 << 30)

        def encode(as_content: bool = as_content) -> None:
            serialize_response(response, as_content)

        seconds = {step.__name__: fastest(step) for step in (decode, encode)}
        speeds = [f"{name} {megabytes / 1e3 / each:.1f} GB/s" for name, each in seconds.items()]
        both = megabytes / 1e3 / sum(seconds.values())
        form = "tensor_content" if as_content else "float_val"
        print(f"{megabytes:g} MB as {form:14}: {', '.join(speeds)}, both {both:.1f} GB/s")


def fastest(step: Callable[[], None], times: int = 50) -> float:
    def once() -> float:
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    return statistics.median(once() for _ in range(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="Ferry's max_batch_delay_ms")
    options = parser.parse_args()
    throughput()
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / "half_plus_two" / "1")
        compare(options, Path(folder))


def make_model(path: Path) -> None:
    """In a process of its own: TensorFlow stays out of this one."""
    process = multiprocessing.get_context("spawn").Process(target=_make_model, args=(path,))
    process.start()
    process.join()


def _make_model(path: Path) -> None:
    from tests.support.savedmodels import make_half_plus_two  # noqa: PLC0415 - TensorFlow, in this process only

    make_half_plus_two(path)


if __name__ == "__main__":
    main()
