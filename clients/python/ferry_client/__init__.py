"""A client for Ferry and for every server that speaks the Open Inference Protocol or TensorFlow Serving's REST API.

Importing it loads neither TensorFlow nor a web framework. The logic performs no I/O: a protocol says what to send
and reads what came back (`exchange.py`); `Client` and `AsyncClient` differ in how a request is carried alone.
"""

from ferry_client.asynchronous import AsyncClient
from ferry_client.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    InvalidResponse,
    ModelNotFound,
    Overloaded,
    RequestTooLarge,
    ServingError,
    Unsupported,
)
from ferry_client.models import ModelMetadata, ModelStatus, TensorMetadata
from ferry_client.synchronous import Client

__all__ = [
    "AsyncClient",
    "Client",
    "ConnectionFailed",
    "DeadlineExceeded",
    "InferenceFailed",
    "InvalidRequest",
    "InvalidResponse",
    "ModelMetadata",
    "ModelNotFound",
    "ModelStatus",
    "Overloaded",
    "RequestTooLarge",
    "ServingError",
    "TensorMetadata",
    "Unsupported",
]
