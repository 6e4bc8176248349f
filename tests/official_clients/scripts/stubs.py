"""Calls that the scripts of TensorFlow Serving's stubs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.python.framework import tensor_util
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc

Question = dict[str, Any]
TIMEOUT_S = 60.0


def prediction(address: str) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(address))


def models(address: str) -> Any:
    return model_service_pb2_grpc.ModelServiceStub(grpc.insecure_channel(address))


def as_content(array: Any) -> Any:
    """As most clients write tensors: bytes, but for strings and single numbers."""
    return tf.make_tensor_proto(array)


def as_typed_fields(array: Any) -> Any:
    kind = tf.string if array.dtype.hasobject else tf.as_dtype(array.dtype)
    proto = TensorProto(dtype=kind.as_datatype_enum, tensor_shape=tf.TensorShape(array.shape).as_proto())
    tensor_util.GetNumpyAppendFn(array.dtype)(proto, array.reshape(-1))
    return proto


def predict_request(model: str, inputs: dict[str, Any], write: Callable[..., Any], **more: Any) -> Any:
    request = predict_pb2.PredictRequest(**more)
    request.model_spec.name = model
    for name, array in inputs.items():
        request.inputs[name].CopyFrom(write(array))
    return request


def predict(address: str, *arguments: Any, **more: Any) -> Any:
    return prediction(address).Predict(predict_request(*arguments, **more), timeout=TIMEOUT_S)


def arrays(reply: Any) -> dict[str, Any]:
    return {name: tf.make_ndarray(proto) for name, proto in reply.outputs.items()}


def rejection(call: Callable[[], Any]) -> dict[str, str]:
    try:
        return {"code": "OK", "text": str(call())}
    except grpc.RpcError as error:
        return {"code": error.code().name, "text": error.details()}
