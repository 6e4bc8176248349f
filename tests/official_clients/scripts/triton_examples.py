"""What Triton's own Python examples do, step by step, with the models that they expect.

They are named after the examples (simple_http_model_control.py and its like over gRPC, image_client.py ...), which are
programs: each ends at the first step that another server answers otherwise.
"""

from __future__ import annotations

import json
import queue
from typing import Any

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.model_config_pb2 as model_config
from exchange import main
from triton import PROTOCOLS, Question, both, client, infer_input, infer_inputs, rejection, requested
from tritonclient.utils import InferenceServerException, shared_memory, triton_to_np_dtype

INPUT0 = np.arange(16, dtype=np.int32).reshape(1, 16)
INPUT1 = np.ones((1, 16), np.int32)


@both
def health_metadata(question: Question, protocol: str) -> Any:
    connection = client(question, protocol)
    more = {"query_params": {"test_1": 1, "test_2": 2}} if protocol == "rest" else {"headers": {"test": "1"}}
    assert connection.is_server_live(**more)
    assert connection.is_server_ready()
    assert connection.is_model_ready("simple")
    named = connection.get_model_metadata("simple", **more)
    unknown = rejection(lambda: connection.get_model_metadata("wrong_model_name"))
    return {"name": named["name"] if protocol == "rest" else named.name, "unknown": unknown["text"]}


@both
def infer(question: Question, protocol: str) -> Any:
    """With outputs that are named, with all, and with compression."""
    connection = client(question, protocol)
    inputs = infer_inputs(protocol, {"INPUT0": INPUT0, "INPUT1": INPUT1})
    outputs = [requested(protocol, name) for name in ("OUTPUT0", "OUTPUT1")]
    compression = (
        {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}
        if protocol == "rest"
        else {"compression_algorithm": "gzip"}
    )
    results = [
        connection.infer("simple", inputs, outputs=outputs, headers={"test": "1"}),
        connection.infer("simple", inputs),
        connection.infer("simple", inputs, outputs=outputs, **compression),
    ]
    return [[result.as_numpy("OUTPUT0"), result.as_numpy("OUTPUT1")] for result in results]


@both
def string_infer(question: Question, protocol: str) -> Any:
    as_text = [np.array([str(x).encode() for x in array.reshape(16)], object) for array in (INPUT0, INPUT1)]
    inputs = {name: text.reshape(1, 16) for name, text in zip(("INPUT0", "INPUT1"), as_text, strict=True)}
    result = client(question, protocol).infer("simple_string", infer_inputs(protocol, inputs))
    return [[int(text) for text in result.as_numpy(name)[0]] for name in ("OUTPUT0", "OUTPUT1")]


@both
def model_control(question: Question, protocol: str) -> Any:
    """Loads the model with a wrong and with another configuration, unloads it, and loads what is not there."""
    connection = client(question, protocol)

    def largest() -> int:
        config = connection.get_model_config("simple")
        return int(config["max_batch_size"] if protocol == "rest" else config.config.max_batch_size)

    index = connection.get_model_repository_index()
    names = [one["name"] if protocol == "rest" else one.name for one in (index if protocol == "rest" else index.models)]
    connection.load_model("simple")
    assert connection.is_model_ready("simple")
    before = largest()
    wrong = rejection(
        lambda: connection.load_model("simple", config='"parameters": {"config": {{"max_batch_size": "16"}}}')
    )
    connection.load_model("simple", config=json.dumps({"max_batch_size": str(2 * before)}))
    overridden = largest()
    result = connection.infer("simple", infer_inputs(protocol, {"INPUT0": INPUT0, "INPUT1": INPUT1}))
    connection.unload_model("simple")
    unloaded = connection.is_model_ready("simple")
    connection.load_model("simple")
    return {
        "names": names,
        "wrong": wrong["text"],
        "largest": [before, overridden, largest()],
        "sum": result.as_numpy("OUTPUT0"),
        "ready": [unloaded, connection.is_model_ready("simple")],
        "unknown": rejection(lambda: connection.load_model("wrong_model_name"))["text"],
        "files": rejection(lambda: connection.load_model("simple", config="{}", files={"file:1/model": b"a"}))["text"],
    }


@both
def shm(question: Question, protocol: str) -> Any:
    """Two inputs and two outputs beside each other in a region each; nothing is registered before and after."""
    connection = client(question, protocol)
    connection.unregister_system_shared_memory()
    connection.unregister_cuda_shared_memory()
    size, owner = INPUT0.nbytes, f"ferry_{question['socket'].replace('/', '_')[-60:]}_{protocol}_simple"
    handles = {
        name: shared_memory.create_shared_memory_region(name, f"/{owner}_{name}", 2 * size)
        for name in ("input_data", "output_data")
    }
    try:
        for name in handles:
            connection.register_system_shared_memory(name, f"/{owner}_{name}", 2 * size)
        shared_memory.set_shared_memory_region(handles["input_data"], [INPUT0])
        shared_memory.set_shared_memory_region(handles["input_data"], [INPUT1], offset=size)
        inputs = [PROTOCOLS[protocol].InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        outputs = [requested(protocol, name) for name in ("OUTPUT0", "OUTPUT1")]
        for place, (one_in, one_out) in enumerate(zip(inputs, outputs, strict=True)):
            one_in.set_shared_memory("input_data", size, offset=place * size)
            one_out.set_shared_memory("output_data", size, offset=place * size)
        result = connection.infer("simple", inputs, outputs=outputs)
        got = []
        for place, name in enumerate(("OUTPUT0", "OUTPUT1")):
            output = result.get_output(name)
            datatype, shape = (
                (output["datatype"], output["shape"]) if protocol == "rest" else (output.datatype, output.shape)
            )
            dtype = triton_to_np_dtype(datatype)
            array = shared_memory.get_contents_as_numpy(handles["output_data"], dtype, shape, offset=place * size)
            got.append(array.copy())
        connection.unregister_system_shared_memory()
        return got
    finally:
        for handle in handles.values():
            shared_memory.destroy_shared_memory_region(handle)


@both
def cuda_shm(question: Question, protocol: str) -> Any:
    """There is none, which is no error unless one is used."""
    connection = client(question, protocol)
    connection.unregister_cuda_shared_memory()
    connection.unregister_cuda_shared_memory("r")
    status = connection.get_cuda_shared_memory_status()
    regions = status if protocol == "rest" else list(status.regions)
    return {
        "regions": regions,
        "register": rejection(lambda: connection.register_cuda_shared_memory("r", b"eA==", 0, 64))["status"],
    }


@both
def image_client(question: Question, protocol: str) -> Any:
    """Prepares images by the configuration, and asks for their three best classes: at once, and in a stream."""
    connection = client(question, protocol)
    metadata, config = connection.get_model_metadata("image"), connection.get_model_config("image")
    if protocol == "rest":
        (named,), (configured,) = metadata["inputs"], config["input"]
        name, datatype, (_, height, width, colours) = named["name"], named["datatype"], named["shape"]
        form = model_config.ModelInput.Format.Value(configured["format"])
    else:
        (named,), (configured,) = metadata.inputs, config.config.input
        name, datatype, (_, height, width, colours) = named.name, named.datatype, named.shape
        form = configured.format
    assert form == model_config.ModelInput.FORMAT_NHWC
    images = np.zeros((2, height, width, colours), triton_to_np_dtype(datatype))
    images[0, ..., 1] = images[1, ..., 2] = 1
    inputs = [infer_input(protocol, name, images)]
    outputs = [requested(protocol, "colours", class_count=3)]
    result = connection.infer("image", inputs, request_id="1", outputs=outputs)
    results = [result, *(_streamed(connection, inputs, outputs) if protocol == "grpc" else [])]
    return [[[text.decode().split(":") for text in row] for row in each.as_numpy("colours")] for each in results]


def _streamed(connection: triton_grpc.InferenceServerClient, inputs: Any, outputs: Any) -> list[Any]:
    replies: Any = queue.Queue()
    connection.start_stream(lambda result, error: replies.put(error or result))
    connection.async_stream_infer("image", inputs, request_id="1", outputs=outputs)
    reply = replies.get(timeout=60)
    connection.stop_stream()
    if isinstance(reply, InferenceServerException):
        raise reply
    return [reply]


@both
def reuse_infer_objects(question: Question, protocol: str) -> Any:
    """The same inputs and outputs, first in the request, then in shared memory, then in the request again."""
    connection, name = client(question, protocol), f"reused_{protocol}"
    key = f"/ferry_{question['socket'].replace('/', '_')[-60:]}_{name}"
    inputs = infer_inputs(protocol, {"INPUT0": INPUT0, "INPUT1": INPUT1})
    outputs = [requested(protocol, "OUTPUT0")]
    sums = [connection.infer("simple", inputs, outputs=outputs).as_numpy("OUTPUT0")]
    handle = shared_memory.create_shared_memory_region(name, key, INPUT0.nbytes)
    try:
        shared_memory.set_shared_memory_region(handle, [2 * INPUT0])
        connection.register_system_shared_memory(name, key, INPUT0.nbytes)
        inputs[0].set_shared_memory(name, INPUT0.nbytes)
        sums.append(connection.infer("simple", inputs, outputs=outputs).as_numpy("OUTPUT0"))
        connection.unregister_system_shared_memory(name)
    finally:
        shared_memory.destroy_shared_memory_region(handle)
    inputs[0].set_data_from_numpy(INPUT0)
    return [*sums, connection.infer("simple", inputs, outputs=outputs).as_numpy("OUTPUT0")]


@both
def statistics(question: Question, protocol: str) -> Any:
    """After a batch whose inputs had to be put together; the parts of its time in nanoseconds."""
    connection = client(question, protocol)
    connection.infer("simple", infer_inputs(protocol, {n: np.ones((3, 16), np.int32) for n in ("INPUT0", "INPUT1")}))
    more = {"as_json": True} if protocol == "grpc" else {}
    (told,) = connection.get_inference_statistics("simple", **more)["model_stats"]
    return told


if __name__ == "__main__":
    main()
