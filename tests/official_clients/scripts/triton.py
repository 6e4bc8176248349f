"""Calls that the scripts of tritonclient share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from exchange import case
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

Question = dict[str, Any]
PROTOCOLS = {"rest": triton_http, "grpc": triton_grpc}


def client(question: Question, protocol: str) -> Any:
    return PROTOCOLS[protocol].InferenceServerClient(question[protocol])


def infer_input(protocol: str, name: str, array: Any, **how: Any) -> Any:
    made = PROTOCOLS[protocol].InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array, **how)
    return made


def infer_inputs(protocol: str, inputs: dict[str, Any], **how: Any) -> list[Any]:
    return [infer_input(protocol, name, array, **how) for name, array in inputs.items()]


def requested(protocol: str, name: str, **how: Any) -> Any:
    return PROTOCOLS[protocol].InferRequestedOutput(name, **how)


def arrays(result: Any) -> dict[str, Any]:
    reply = result.get_response()
    names = (
        [one["name"] for one in reply["outputs"]] if isinstance(reply, dict) else [one.name for one in reply.outputs]
    )
    return {name: result.as_numpy(name) for name in names}


def rejection(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"status": "OK", "text": str(call())}
    except InferenceServerException as error:
        return {"status": error.status(), "text": error.message()}


def both(make: Callable[[Question, str], Any]) -> Callable[[Question], Any]:
    """The same with the HTTP client and with the gRPC client."""

    def each(question: Question) -> Any:
        return {protocol: make(question, protocol) for protocol in PROTOCOLS}

    each.__name__ = make.__name__
    return case(each)
