"""What TensorFlow Serving's own stubs get from the drop-in start, whose list of models they change."""

from __future__ import annotations

from typing import Any

import numpy as np
from exchange import case, main
from stubs import TIMEOUT_S, Question, arrays, as_content, models, predict, predict_request, prediction, rejection
from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2, model_pb2

X = {"x": np.array([1, 5], np.float32)}


def reload(question: Question, *listed: dict[str, Any]) -> Any:
    """Error code and text of the reply."""
    request = model_management_pb2.ReloadConfigRequest()
    for each in listed:
        request.config.model_config_list.config.add(model_platform="tensorflow", **each)
    status = models(question["grpc"]).HandleReloadConfigRequest(request, timeout=TIMEOUT_S).status
    return [status.error_code, status.error_message]


def labelled(question: Question, label: str) -> Any:
    request = predict_request("half", X, as_content)
    request.model_spec.MergeFrom(model_pb2.ModelSpec(version_label=label))
    return prediction(question["grpc"]).Predict(request, timeout=TIMEOUT_S)


@case
def fields_of_the_reply(question: Question) -> Any:
    """Clients of TensorFlow Serving read float_val."""
    y = predict(question["grpc"], "half", X, as_content).outputs["y"]
    return {"float_val": list(y.float_val), "content": len(y.tensor_content)}


@case
def rest_of_the_models(question: Question) -> Any:
    return rejection(lambda: predict(question["grpc"], "more", X, as_content))["code"]


@case
def after_reload(question: Question) -> Any:
    """A second model and a label come, then the first model goes."""
    half, more = ({"name": name, "base_path": question["folders"][name]} for name in ("half", "more"))
    both = reload(question, {**half, "version_labels": {"stable": 1}}, more)
    answers = [arrays(labelled(question, "stable"))["y"], arrays(predict(question["grpc"], "more", X, as_content))["y"]]
    one = reload(question, more)
    gone = rejection(lambda: predict(question["grpc"], "half", X, as_content))["code"]
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name="more"))
    states = models(question["grpc"]).GetModelStatus(request, timeout=TIMEOUT_S).model_version_status
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    return {"replies": [both, one], "y": answers, "gone": gone, "available": [s.state == available for s in states]}


if __name__ == "__main__":
    main()
