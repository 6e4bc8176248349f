"""Classify, Regress and MultiInference over gRPC: tf.Examples in, results out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import STRING, Array, InferenceRequest, ModelSignature
from app.core.interfaces import ServedModel, ServedRepository
from app.protocols.tensorflow_serving.examples import (
    CLASSES,
    CLASSIFY,
    INPUT,
    REGRESS,
    REGRESSION,
    SCORES,
    ExamplesMethod,
)
from app.protocols.tensorflow_serving.grpc_example_lists import ExamplesRequestInProcess, read_examples
from app.protocols.tensorflow_serving.grpc_model_spec import fill_spec, resolve, resolve_signature, version_choice
from app.transports.grpc.calls import Answer, GrpcCall
from app.transports.http.long_bodies.reading_process import Reader


class _Task(NamedTuple):
    """A method, and how its outputs of `count` rows fill its result message: fill(result, outputs, count)."""

    method: ExamplesMethod
    fill: Callable[[Any, Mapping[str, Array], int], None]


#: The serialized examples of a request message, [rows]. Raises InvalidRequest.
ReadExamples = Callable[[Any], Array]

_Check = Callable[[Any, GrpcCall], object]
_Answer = Callable[[Any, GrpcCall, ReadExamples], Awaitable[Any]]


class ExampleCalls:
    """Answers ClassificationRequest, RegressionRequest and MultiInferenceRequest. Methods raise ServingError."""

    def __init__(self, repository: ServedRepository) -> None:
        self._repository = repository

    async def classify(self, request: Any, call: GrpcCall, read: ReadExamples = read_examples) -> Any:
        return await self._one(request, call, read, _CLASSIFY, "tensorflow.serving.ClassificationResponse")

    async def regress(self, request: Any, call: GrpcCall, read: ReadExamples = read_examples) -> Any:
        return await self._one(request, call, read, _REGRESS, "tensorflow.serving.RegressionResponse")

    async def multi_inference(self, request: Any, call: GrpcCall, read: ReadExamples = read_examples) -> Any:
        """Runs all tasks on the same examples and the same version of the model."""
        model = self._model_of_tasks(request, call)
        reply = message_class("tensorflow.serving.MultiInferenceResponse")()
        examples = read(request)
        results = [(task, reply.results.add()) for task in request.tasks]
        await asyncio.gather(*[_infer_task(model, task, examples, call, result) for task, result in results])
        return reply

    # --- messages that another process reads ---

    def classify_in_process(self, content: bytes, call: GrpcCall, process: Reader) -> Answer:
        message = ExamplesRequestInProcess(process, "tensorflow.serving.ClassificationRequest", "Classify", content)
        return self._in_process(message, call, self._signature, self.classify)

    def regress_in_process(self, content: bytes, call: GrpcCall, process: Reader) -> Answer:
        message = ExamplesRequestInProcess(process, "tensorflow.serving.RegressionRequest", "Regress", content)
        return self._in_process(message, call, self._signature, self.regress)

    def multi_inference_in_process(self, content: bytes, call: GrpcCall, process: Reader) -> Answer:
        message = ExamplesRequestInProcess(
            process, "tensorflow.serving.MultiInferenceRequest", "MultiInference", content
        )
        return self._in_process(message, call, self._model_of_tasks, self.multi_inference)

    def _in_process(self, message: ExamplesRequestInProcess, call: GrpcCall, check: _Check, answer: _Answer) -> Answer:
        """Checks and reads in the order in which `answer` does, which then resolves the model again."""
        request = message.head()
        check(request, call)
        examples = message.examples()
        return partial(answer, request, call, lambda _: examples)

    # --- models ---

    def _model_of_tasks(self, request: Any, call: GrpcCall) -> ServedModel:
        """The one model that all tasks name. Raises InvalidRequest, ModelNotFound, ModelNotReady."""
        if not request.tasks:
            raise InvalidRequest("MultiInferenceRequest has no tasks; expected one or more")
        first = request.tasks[0].model_spec
        if any(_model_of(task.model_spec) != _model_of(first) for task in request.tasks):
            raise InvalidRequest("All tasks of a MultiInferenceRequest must be for the same model and version")
        return resolve(self._repository, first, call)

    def _signature(self, request: Any, call: GrpcCall) -> tuple[ServedModel, ModelSignature]:
        """The model and signature that a request names. Raises InvalidRequest, ModelNotFound, ModelNotReady."""
        model = resolve(self._repository, request.model_spec, call)
        return model, resolve_signature(model, request.model_spec, call, _no_signature)

    async def _one(self, request: Any, call: GrpcCall, read: ReadExamples, task: _Task, response: str) -> Any:
        reply = message_class(response)()
        model, signature = self._signature(request, call)
        await _infer(model, signature, task, read(request), call, result=reply.result)
        fill_spec(reply.model_spec, model.name, model.version, signature.name)
        return reply


async def _infer_task(model: ServedModel, request: Any, examples: Array, call: GrpcCall, result: Any) -> None:
    signature = resolve_signature(model, request.model_spec, call, _no_signature_of_task)
    if request.method_name not in _TASKS:
        raise Unsupported(f"Unsupported signature method_name: {request.method_name!r}; have {', '.join(_TASKS)}")
    task, field = _TASKS[request.method_name]
    await _infer(model, signature, task, examples, call, result=getattr(result, field))
    fill_spec(result.model_spec, model.name, model.version, signature.name)


async def _infer(
    model: ServedModel, signature: ModelSignature, task: _Task, examples: Array, call: GrpcCall, *, result: Any
) -> None:
    wanted = task.method.wanted(signature)
    request = InferenceRequest({INPUT: examples}, signature.name, wanted, call.deadline_s, call.priority, call.caller)
    response = call.computed(request, await model.infer(request))
    task.fill(result, response.outputs, len(examples))


def _fill_classes(result: Any, outputs: Mapping[str, Array], count: int) -> None:
    """A label and a score for each class; '' or 0 if the signature lacks one. Raises InvalidRequest."""
    for name, array in outputs.items():
        if array.ndim != 2 or len(array) != count:
            raise _inconsistent(name, array, f"[{count},?]")
    shape = next(iter(outputs.values())).shape
    labels = outputs.get(CLASSES, np.full(shape, b"", STRING))
    scores = outputs.get(SCORES, np.zeros(shape, np.float32))
    if labels.shape != scores.shape or labels.dtype != STRING or scores.dtype == STRING:
        raise InvalidRequest(f"Outputs {CLASSES!r}, strings, and {SCORES!r}, numbers, must have one column a class")
    for row_labels, row_scores in zip(labels.tolist(), scores.astype(np.float32).tolist(), strict=True):
        classes = result.classifications.add().classes
        for label, score in zip(row_labels, row_scores, strict=True):
            classes.add(label=label.decode(errors="replace"), score=score)


def _fill_regressions(result: Any, outputs: Mapping[str, Array], count: int) -> None:
    """A number for each example. Raises InvalidRequest."""
    array = outputs[REGRESSION]
    if array.shape not in ((count,), (count, 1)) or array.dtype == STRING:
        raise _inconsistent(REGRESSION, array, f"[{count}] or [{count},1] numbers")
    for value in array.reshape(count).astype(np.float32).tolist():
        result.regressions.add(value=value)


_CLASSIFY = _Task(CLASSIFY, _fill_classes)
_REGRESS = _Task(REGRESS, _fill_regressions)

#: SignatureDef's method name -> the task, and the field of InferenceResult that has its result.
_TASKS = {
    "tensorflow/serving/classify": (_CLASSIFY, "classification_result"),
    "tensorflow/serving/regress": (_REGRESS, "regression_result"),
}


def _no_signature(name: str) -> InvalidRequest:
    """Code and text as TensorFlow Serving's (classifier.cc, regressor.cc); Predict has others."""
    return InvalidRequest(f"No signature was found with the name: {name}")


def _no_signature_of_task(name: str) -> InvalidRequest:
    """The error for an unknown signature of a task, with TensorFlow Serving's text (multi_inference.cc)."""
    return InvalidRequest(f"Requested signature not found in model graph: {name}")


def _model_of(spec: Any) -> tuple[Any, ...]:
    return (spec.name, *version_choice(spec))


def _inconsistent(name: str, array: Array, expected: str) -> InvalidRequest:
    shape = ",".join(map(str, array.shape))
    return InvalidRequest(f"Output {name!r} has shape [{shape}]; expecting {expected}")
