"""What TensorFlow Serving's own stubs get, and gRPC's own for health and reflection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from exchange import case, main
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from stubs import (
    TIMEOUT_S,
    Question,
    arrays,
    as_content,
    as_typed_fields,
    models,
    predict,
    predict_request,
    prediction,
    rejection,
)
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    regression_pb2,
)


def same_requests(question: Question, write: Callable[..., Any]) -> dict[str, Any]:
    return {
        name: arrays(predict(question["grpc"], request["model"], request["inputs"], write))
        for name, request in question["requests"].items()
    }


@case
def tensor_content(question: Question) -> Any:
    return same_requests(question, as_content)


@case
def typed_fields(question: Question) -> Any:
    return same_requests(question, as_typed_fields)


@case
def output_filter(question: Question) -> Any:
    inputs = {name: np.ones((1, 2), np.float32) for name in "ab"}
    return arrays(predict(question["grpc"], "several_inputs", inputs, as_content, output_filter=["product"]))


@case
def model_spec_of_the_reply(question: Question) -> Any:
    spec = predict(question["grpc"], "half_plus_two", {"x": np.float32([1])}, as_content).model_spec
    return {"name": spec.name, "version": spec.version.value, "signature": spec.signature_name}


@case
def unix_socket(question: Question) -> Any:
    reply = predict(f"unix:{question['socket']}", "half_plus_two", {"x": np.float32([1, 2])}, as_content)
    return arrays(reply)["y"]


@case
def rejections(question: Question) -> Any:
    def rejected(model: str = "half_plus_two", name: str = "x", value: Any = 1.0, **spec: Any) -> Any:
        request = predict_request(model, {name: np.atleast_1d(value)}, as_content)
        request.model_spec.MergeFrom(model_pb2.ModelSpec(**spec))
        return rejection(lambda: prediction(question["grpc"]).Predict(request, timeout=TIMEOUT_S))

    one = np.float32(1)
    return {
        "model": rejected("nope", value=one),
        "version": rejected(value=one, version={"value": 9}),
        "label": rejected(value=one, version_label="none"),
        "signature": rejected(value=one, signature_name="none"),
        "input": rejected(name="z", value=one),
        "dtype": rejected(value=np.int32(1)),
        "shape": rejected(value=np.float32([[1]])),
    }


@case
def deadline(question: Question) -> Any:
    request = predict_request("slow", {"steps": np.int32([question["slow_steps"]])}, as_content)
    return rejection(lambda: prediction(question["grpc"]).Predict(request, timeout=0.2))


def people(ages: list[float]) -> Any:
    def example(age: float) -> Any:
        return tf.train.Example(
            features=tf.train.Features(feature={"age": tf.train.Feature(float_list=tf.train.FloatList(value=[age]))})
        )

    return [example(age) for age in ages]


def spec(signature: str) -> Any:
    return model_pb2.ModelSpec(name="classic", signature_name=signature)


@case
def classify(question: Question) -> Any:
    request = classification_pb2.ClassificationRequest(model_spec=spec("classify"))
    request.input.example_list.examples.extend(people([1, 2]))
    result = prediction(question["grpc"]).Classify(request, timeout=TIMEOUT_S).result
    return [[[one.label, one.score] for one in row.classes] for row in result.classifications]


@case
def regress(question: Question) -> Any:
    request = regression_pb2.RegressionRequest(model_spec=spec("regress"))
    request.input.example_list_with_context.context.CopyFrom(people([4])[0])
    request.input.example_list_with_context.examples.extend([*people([1]), tf.train.Example()])
    result = prediction(question["grpc"]).Regress(request, timeout=TIMEOUT_S).result
    return [one.value for one in result.regressions]


@case
def multi_inference(question: Question) -> Any:
    request = inference_pb2.MultiInferenceRequest()
    request.input.example_list.examples.extend(people([1, 2]))
    for signature in ("classify", "regress"):
        request.tasks.add(model_spec=spec(signature), method_name=f"tensorflow/serving/{signature}")
    first, second = prediction(question["grpc"]).MultiInference(request, timeout=TIMEOUT_S).results
    return {
        "scores": [[one.score for one in row.classes] for row in first.classification_result.classifications],
        "values": [one.value for one in second.regression_result.regressions],
    }


@case
def metadata(question: Question) -> Any:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "several_inputs"
    reply = prediction(question["grpc"]).GetModelMetadata(request, timeout=TIMEOUT_S)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    reply.metadata["signature_def"].Unpack(signatures)
    default = signatures.signature_def["serving_default"]
    return {
        "version": reply.model_spec.version.value,
        "method": default.method_name,
        "inputs": {name: [one.dtype, [d.size for d in one.tensor_shape.dim]] for name, one in default.inputs.items()},
        "outputs": sorted(default.outputs),
    }


@case
def status(question: Question) -> Any:
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name="digits"))
    reply = models(question["grpc"]).GetModelStatus(request, timeout=TIMEOUT_S)
    state = get_model_status_pb2.ModelVersionStatus.State.Name
    return [[one.version, state(one.state), one.status.error_code] for one in reply.model_version_status]


@case
def status_of_no_model(question: Question) -> Any:
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name="nope"))
    return rejection(lambda: models(question["grpc"]).GetModelStatus(request, timeout=TIMEOUT_S))


@case
def reload_of_a_folder(question: Question) -> Any:
    request = model_management_pb2.ReloadConfigRequest()
    return rejection(lambda: models(question["grpc"]).HandleReloadConfigRequest(request, timeout=TIMEOUT_S))


@case
def health(question: Question) -> Any:
    asked = health_pb2_grpc.HealthStub(grpc.insecure_channel(question["grpc"]))
    names = ["", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"]
    checks = [asked.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S) for name in names]
    watched = next(asked.Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S))
    unknown = rejection(lambda: asked.Check(health_pb2.HealthCheckRequest(service="none"), timeout=TIMEOUT_S))
    return {"checks": [each.status for each in [*checks, watched]], "unknown": unknown["code"]}


@case
def reflection(question: Question) -> Any:
    """A call made of nothing but what the server tells about itself."""
    channel = grpc.insecure_channel(question["grpc"])
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    method = pool.FindServiceByName("tensorflow.serving.PredictionService").methods_by_name["Predict"]
    request_class, reply_class = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
    request = request_class()
    request.model_spec.name = "half_plus_two"
    request.inputs["x"].dtype = tf.float32.as_datatype_enum
    request.inputs["x"].float_val.append(4)
    request.inputs["x"].tensor_shape.dim.add().size = 1
    call = channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict", request_class.SerializeToString, reply_class.FromString
    )
    y = call(request, timeout=TIMEOUT_S).outputs["y"]
    written = TensorProto.FromString(y.SerializeToString())
    return {"services": sorted(database.get_services()), "y": tf.make_ndarray(written)}


if __name__ == "__main__":
    main()
