"""What tritonclient learns of the server and changes in it: health, metadata, statistics, models, shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from exchange import main
from triton import PROTOCOLS, Question, both, client, infer_inputs, rejection, requested
from tritonclient.utils import shared_memory


@both
def system_shared_memory(question: Question, protocol: str) -> Any:
    connection = client(question, protocol)
    images = question["requests"]["digits"]["inputs"]["image"]
    sizes = {"in": images.nbytes, "out": len(images) * 10 * 4}
    keys = {name: f"/ferry_{question['socket'].replace('/', '_')[-60:]}_{protocol}_{name}" for name in sizes}
    regions = {name: shared_memory.create_shared_memory_region(name, keys[name], sizes[name]) for name in sizes}
    try:
        shared_memory.set_shared_memory_region(regions["in"], [images])
        for name, size in sizes.items():
            connection.register_system_shared_memory(name, keys[name], size)
        status = connection.get_system_shared_memory_status()
        known = [one["name"] for one in status] if isinstance(status, list) else list(status.regions)
        image = PROTOCOLS[protocol].InferInput("image", list(images.shape), "FP32")
        image.set_shared_memory("in", sizes["in"])
        output = requested(protocol, "probabilities")
        output.set_shared_memory("out", sizes["out"])
        connection.infer("digits", [image], outputs=[output])
        got = shared_memory.get_contents_as_numpy(regions["out"], np.float32, [len(images), 10]).copy()
        connection.unregister_system_shared_memory()
        after = rejection(lambda: connection.infer("digits", [image], outputs=[output]))
        return {"known": sorted(known), "probabilities": got, "after": after}
    finally:
        for region in regions.values():
            shared_memory.destroy_shared_memory_region(region)


@both
def health(question: Question, protocol: str) -> Any:
    connection = client(question, protocol)
    ready = [
        connection.is_model_ready("digits"),
        connection.is_model_ready("digits", "1"),
        connection.is_model_ready("nope"),
    ]
    return [connection.is_server_live(), connection.is_server_ready(), *ready]


def told(question: Question, protocol: str, method: str, *arguments: Any) -> Any:
    more = {"as_json": True} if protocol == "grpc" else {}
    return getattr(client(question, protocol), method)(*arguments, **more)


@both
def server_metadata(question: Question, protocol: str) -> Any:
    return told(question, protocol, "get_server_metadata")


@both
def model_metadata(question: Question, protocol: str) -> Any:
    return told(question, protocol, "get_model_metadata", "digits")


@both
def model_config(question: Question, protocol: str) -> Any:
    return told(question, protocol, "get_model_config", "digits")


@both
def statistics(question: Question, protocol: str) -> Any:
    """Before and after two requests of three rows each."""

    def count() -> Any:
        return told(question, protocol, "get_inference_statistics", "half_plus_two")["model_stats"][0]

    before, connection = count(), client(question, protocol)
    for _ in range(2):
        connection.infer("half_plus_two", infer_inputs(protocol, {"x": np.float32([1, 2, 3])}))
    return {"before": before, "after": count()}


@both
def repository(question: Question, protocol: str) -> Any:
    """The state of `spare` in the index, and whether it is ready: as it was, unloaded, loaded."""
    connection = client(question, protocol)

    def state() -> Any:
        index = told(question, protocol, "get_model_repository_index")
        models = index if isinstance(index, list) else index["models"]
        return [*[one.get("state") for one in models if one["name"] == "spare"], connection.is_model_ready("spare")]

    states = [state()]
    connection.unload_model("spare")
    states.append(state())
    connection.load_model("spare")
    return [*states, state()]


@both
def load_of_no_model(question: Question, protocol: str) -> Any:
    return rejection(lambda: client(question, protocol).load_model("nope"))


if __name__ == "__main__":
    main()
