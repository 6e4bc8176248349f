"""The examples of Classify, Regress and MultiInference over gRPC; another process reads many of them, without gRPC."""

from __future__ import annotations

from typing import Any

from app.codecs.protobuf.messages import message_class
from app.core.errors import InvalidRequest
from app.core.inference import Array
from app.protocols.tensorflow_serving.examples import with_context
from app.transports.grpc.messages_in_process import parse_in_process
from app.transports.http.long_bodies.reading_process import Reader

#: The most tasks of a MultiInferenceRequest that come back from the process. Chosen: far more than a model has.
_MOST_TASKS = 1000


def read_examples(request: Any) -> Array:
    """Serialized tf.Examples, [rows]; each also has the features of the context it lacks. Raises InvalidRequest."""
    source = request.input
    kind = source.WhichOneof("kind")
    examples = getattr(source, kind).examples if kind else ()
    if not examples:
        raise InvalidRequest("Input is empty.")
    context = source.example_list_with_context.context.SerializeToString() if kind.endswith("context") else b""
    return with_context(context, [example.SerializeToString() for example in examples])


class ExamplesRequestInProcess:
    """A request that `process` parses. Its methods raise ServingError, TimeoutError and ProcessEnded."""

    def __init__(self, process: Reader, message: str, method: str, content: bytes) -> None:
        self._process = process
        self._message = message
        process.keep(parse_in_process, message, method, memoryview(content))

    def head(self) -> Any:
        """The message without its examples."""
        return message_class(self._message).FromString(self._process.ask(_head))

    def examples(self) -> Array:
        """The examples of the message, as by `read_examples`."""
        return self._process.ask(read_examples)


# --- in another process ---


def _head(request: Any) -> bytes:
    head = type(request)()
    for field, value in request.ListFields():
        if field.name == "tasks" and len(value) > _MOST_TASKS:
            raise InvalidRequest(f"MultiInferenceRequest has {len(value)} tasks; expected {_MOST_TASKS} at most")
        if field.name != "input":
            getattr(head, field.name).MergeFrom(value)
    content: bytes = head.SerializeToString()
    return content
