"""What KServe's inference clients get: REST by both protocols, and gRPC."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import grpc
import httpx
import numpy as np
from exchange import case, main
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput
from kserve.utils.numpy_codec import from_np_dtype

Question = dict[str, Any]


def rest(protocol: str) -> Any:
    return InferenceRESTClient(RESTConfig(protocol=protocol, retries=1, timeout=60))


def url(question: Question) -> str:
    return f"http://{question['rest']}"


def infer_request(request: dict[str, Any], binary: bool, **more: Any) -> Any:
    inputs = []
    for name, array in request["inputs"].items():
        inputs.append(InferInput(name, list(array.shape), from_np_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    return InferRequest(request["model"], inputs, **more)


def arrays(response: Any) -> dict[str, Any]:
    return {output.name: output.as_numpy() for output in response.outputs}


def known(question: Question) -> dict[str, Any]:
    """KServe's clients know no bfloat16."""
    return {name: one for name, one in question["requests"].items() if "bfloat16" not in one["inputs"]}


async def rejection(call: Awaitable[Any]) -> dict[str, Any]:
    try:
        return {"status": "OK", "text": str(await call)}
    except httpx.HTTPStatusError as error:
        return {"status": error.response.status_code, "text": str(error)}
    except grpc.RpcError as error:
        return {"status": error.code().name, "text": error.details()}


async def rest_requests(question: Question, binary: bool, leave_out: str = "") -> Any:
    async with rest("v2") as client:
        answers = {}
        for name, request in known(question).items():
            if name == leave_out:
                continue
            outputs = [RequestedOutput(one, parameters={"binary_data": binary}) for one in request["outputs"]]
            asked = infer_request(request, binary, request_outputs=outputs)
            answers[name] = arrays(await client.infer(url(question), asked, model_name=request["model"]))
        return answers


@case
async def kserve_binary(question: Question) -> Any:
    return await rest_requests(question, binary=True)


@case
async def kserve_json(question: Question) -> Any:
    """This client writes null for NaN."""
    return await rest_requests(question, binary=False, leave_out="not finite")


async def grpc_requests(question: Question, binary: bool) -> Any:
    async with InferenceGRPCClient(question["grpc"]) as client:
        return {
            name: arrays(await client.infer(infer_request(request, binary)))
            for name, request in known(question).items()
        }


@case
async def kserve_grpc_raw(question: Question) -> Any:
    return await grpc_requests(question, binary=True)


@case
async def kserve_grpc_contents(question: Question) -> Any:
    return await grpc_requests(question, binary=False)


@case
async def v1_predict(question: Question) -> Any:
    async with rest("v1") as client:
        images = question["requests"]["digits"]["inputs"]["image"].tolist()
        return await client.infer(url(question), {"instances": images}, model_name="digits")


@case
async def v1_rejection(question: Question) -> Any:
    async with rest("v1") as client:
        return await rejection(client.infer(url(question), {"instances": [1]}, model_name="nope"))


@case
async def rest_health(question: Question) -> Any:
    async with rest("v2") as client:
        server = [await client.is_server_live(url(question)), await client.is_server_ready(url(question))]
        return [*server, *[await client.is_model_ready(url(question), name) for name in ("digits", "nope")]]


@case
async def grpc_health(question: Question) -> Any:
    async with InferenceGRPCClient(question["grpc"]) as client:
        server = [await client.is_server_live(), await client.is_server_ready()]
        return [*server, await client.is_model_ready("digits"), await rejection(client.is_model_ready("nope"))]


@case
async def rejections(question: Question) -> Any:
    wrong = {"model": "half_plus_two", "inputs": {"x": np.int32([1])}}
    unknown = {"model": "nope", "inputs": {"x": np.float32([1])}}
    async with rest("v2") as http, InferenceGRPCClient(question["grpc"]) as over_grpc:
        return {
            name: [
                await rejection(http.infer(url(question), infer_request(request, True), model_name=request["model"])),
                await rejection(over_grpc.infer(infer_request(request, True))),
            ]
            for name, request in {"dtype": wrong, "model": unknown}.items()
        }


@case
async def request_ids(question: Question) -> Any:
    request = {"model": "half_plus_two", "inputs": {"x": np.float32([1])}}
    async with rest("v2") as http, InferenceGRPCClient(question["grpc"]) as over_grpc:
        asked = infer_request(request, True, request_id="order 66")
        by_http = await http.infer(url(question), asked, model_name="half_plus_two")
        return [by_http.id, (await over_grpc.infer(asked)).id]


if __name__ == "__main__":
    main()
