"""What tritonclient infers: HTTP and gRPC, blocking and asyncio, JSON and binary."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from exchange import case, main
from triton import Question, arrays, both, client, infer_input, infer_inputs, rejection, requested

# --- the same numbers ---


@case
def http_binary(question: Question) -> Any:
    connection = client(question, "rest")
    return {
        name: arrays(connection.infer(request["model"], infer_inputs("rest", request["inputs"])))
        for name, request in question["requests"].items()
    }


@case
def http_json(question: Question) -> Any:
    """JSON both ways; tritonclient writes no bfloat16 as JSON, so those requests are not made."""
    connection = client(question, "rest")
    return {
        name: arrays(
            connection.infer(
                request["model"],
                infer_inputs("rest", request["inputs"], binary_data=False),
                outputs=[requested("rest", one, binary_data=False) for one in request["outputs"]],
            )
        )
        for name, request in question["requests"].items()
        if "bfloat16" not in request["inputs"]
    }


@case
def grpc_raw(question: Question) -> Any:
    connection = client(question, "grpc")
    return {
        name: arrays(connection.infer(request["model"], infer_inputs("grpc", request["inputs"])))
        for name, request in question["requests"].items()
    }


@case
async def http_aio(question: Question) -> Any:
    async with triton_http_aio.InferenceServerClient(question["rest"]) as connection:
        return {
            name: arrays(await connection.infer(request["model"], infer_inputs("rest", request["inputs"])))
            for name, request in question["requests"].items()
        }


@case
async def grpc_aio(question: Question) -> Any:
    async with triton_grpc_aio.InferenceServerClient(question["grpc"]) as connection:
        return {
            name: arrays(await connection.infer(request["model"], infer_inputs("grpc", request["inputs"])))
            for name, request in question["requests"].items()
        }


@case
def http_compressed(question: Question) -> Any:
    """Every way of compression, for binary and for JSON bodies."""
    connection = client(question, "rest")
    images = question["requests"]["digits"]["inputs"]
    return {
        f"{algorithm} {'binary' if binary else 'JSON'}": connection.infer(
            "digits",
            infer_inputs("rest", images, binary_data=binary),
            outputs=[requested("rest", "probabilities", binary_data=binary)],
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        ).as_numpy("probabilities")
        for algorithm in ("gzip", "deflate")
        for binary in (True, False)
    }


@case
def grpc_compressed(question: Question) -> Any:
    images = infer_inputs("grpc", question["requests"]["digits"]["inputs"])
    return {
        algorithm: client(question, "grpc")
        .infer("digits", images, compression_algorithm=algorithm)
        .as_numpy("probabilities")
        for algorithm in ("gzip", "deflate")
    }


# --- what a request may ask for ---


@both
def requested_outputs(question: Question, protocol: str) -> Any:
    inputs = infer_inputs(protocol, {name: np.ones((1, 2), np.float32) for name in "ab"})
    return arrays(client(question, protocol).infer("several_inputs", inputs, outputs=[requested(protocol, "product")]))


@both
def classification(question: Question, protocol: str) -> Any:
    inputs = infer_inputs(protocol, question["requests"]["digits"]["inputs"])
    outputs = [requested(protocol, "probabilities", class_count=2)]
    return client(question, protocol).infer("digits", inputs, outputs=outputs).as_numpy("probabilities")


@both
def request_id(question: Question, protocol: str) -> Any:
    inputs = infer_inputs(protocol, {"x": np.float32([1])})
    reply = client(question, protocol).infer("half_plus_two", inputs, request_id="order 66").get_response()
    return reply["id"] if isinstance(reply, dict) else reply.id


@both
def version_and_signature(question: Question, protocol: str) -> Any:
    inputs = infer_inputs(protocol, {"x": np.float32([1, 5])})
    parameters = {"signature_name": "double"}
    connection = client(question, protocol)
    return connection.infer("several_signatures", inputs, model_version="1", parameters=parameters).as_numpy("y")


@both
def timeout_in_time(question: Question, protocol: str) -> Any:
    inputs = infer_inputs(protocol, {"x": np.float32([1])})
    return client(question, protocol).infer("half_plus_two", inputs, timeout=50_000_000, priority=1).as_numpy("y")


@both
def timeout_passed(question: Question, protocol: str) -> Any:
    inputs = infer_inputs(protocol, {"steps": np.int32([question["slow_steps"]])})
    return rejection(lambda: client(question, protocol).infer("slow", inputs, timeout=100_000))


@both
def rejections(question: Question, protocol: str) -> Any:
    connection = client(question, protocol)

    def rejected(model: str = "half_plus_two", name: str = "x", value: Any = (1,), **more: Any) -> Any:
        array = np.asarray(value, more.pop("dtype", np.float32))
        return rejection(lambda: connection.infer(model, [infer_input(protocol, name, array)], **more))

    return {
        "model": rejected("nope"),
        "version": rejected(model_version="9"),
        "input": rejected(name="z"),
        "output": rejected(outputs=[requested(protocol, "z")]),
        "dtype": rejected(dtype=np.int32),
        "shape": rejected(value=[[1]]),
        "sequence": rejected(sequence_id=7, sequence_start=True),
    }


# --- many at a time ---


@case
def http_async(question: Question) -> Any:
    connection = triton_http.InferenceServerClient(question["rest"], concurrency=4)
    inputs = [infer_inputs("rest", {"x": np.float32([number])}) for number in range(16)]
    pending = [connection.async_infer("half_plus_two", each) for each in inputs]
    return [float(each.get_result().as_numpy("y")[0]) for each in pending]


@case
def grpc_async(question: Question) -> Any:
    connection = client(question, "grpc")
    replies: Any = queue.Queue()
    for number in range(16):
        inputs = infer_inputs("grpc", {"x": np.float32([number])})
        connection.async_infer("half_plus_two", inputs, lambda result, error: replies.put((result, error)))
    return sorted(float(result.as_numpy("y")[0]) for result, _ in (replies.get(timeout=60) for _ in range(16)))


@case
def grpc_stream(question: Question) -> Any:
    """A good request, one for a model that is not there, and another good one on the same stream."""
    connection = client(question, "grpc")
    replies: Any = queue.Queue()
    connection.start_stream(lambda result, error: replies.put((result, error)))
    inputs = infer_inputs("grpc", {"x": np.float32([1])})
    for number, model in enumerate(["half_plus_two", "nope", "half_plus_two"]):
        connection.async_stream_infer(model, inputs, request_id=str(number), enable_empty_final_response=True)
    received = [replies.get(timeout=60) for _ in range(3)]
    connection.stop_stream()
    return [str(error) if error else [r.get_response().id, float(r.as_numpy("y")[0])] for r, error in received]


@case
async def grpc_aio_stream(question: Question) -> Any:
    async def requests() -> Any:
        for number in range(20):
            inputs = infer_inputs("grpc", {"x": np.float32([number])})
            yield {"model_name": "half_plus_two", "inputs": inputs, "request_id": str(number)}

    async with triton_grpc_aio.InferenceServerClient(question["grpc"]) as connection:
        return [float(result.as_numpy("y")[0]) async for result, _ in connection.stream_infer(requests())]


if __name__ == "__main__":
    main()
