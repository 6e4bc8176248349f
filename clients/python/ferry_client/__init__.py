"""A client for Ferry and for every server that speaks the Open Inference Protocol or TensorFlow Serving's REST API.

It needs numpy and httpx only. The logic performs no I/O: a protocol writes requests and reads replies
(`exchange.py`); `Client` and `AsyncClient` differ only in how a request is sent.
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
