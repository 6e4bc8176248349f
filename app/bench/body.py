"""A request made from what the server says about its model: random numbers of the right types and shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np

if TYPE_CHECKING:
    from ferry_client.codec import Codec
    from ferry_client.exchange import Request
    from ferry_client.models import ModelSpec, TensorMetadata

#: What stands for a free size that is not the batch: short, for nobody knows what the model bears.
_FREE_SIZE = 8

_V1 = re.compile(r"(?P<prefix>.*)/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+))?:predict")
_V2 = re.compile(r"(?P<prefix>.*)/v2/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+))?/infer")


class NoBody(ValueError):
    """No request can be made from the address or the model's description; the text says why."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go: parts of a URL."""

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises NoBody."""
        try:
            parts = urlsplit(url)
            port = parts.port or 80
        except ValueError as error:
            raise NoBody(f"URL {url!r} is none: {error}") from None
        if parts.scheme != "http" or not parts.hostname:
            raise NoBody(f"URL must be http://HOST:PORT/PATH, not {url!r}")
        return cls(parts.hostname, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


class Endpoint:
    """A model's predict (v1, JSON) or infer (v2, binary) path: which documents go to and fro.

    Raises NoBody where the path is neither.
    """

    def __init__(self, path: str) -> None:
        try:
            from ferry_client.exchange import Response  # noqa: PLC0415 - an extra
            from ferry_client.models import ModelSpec  # noqa: PLC0415
            from ferry_client.open_inference import OpenInference  # noqa: PLC0415
            from ferry_client.tensorflow_json import TensorFlowJson  # noqa: PLC0415
        except ImportError:
            raise NoBody("Making a request needs the client (pip install 'ferry[client]'); or give --body") from None
        self._response = Response
        found = _V1.fullmatch(path) or _V2.fullmatch(path)
        if found is None:
            raise NoBody(
                f"{path} is neither /v1/models/MODEL:predict nor /v2/models/MODEL/infer: say what to send with --body"
            )
        self._codec: Codec = TensorFlowJson() if found.re is _V1 else OpenInference()
        self._prefix = found["prefix"]
        self._spec: ModelSpec = ModelSpec(unquote(found["name"]), found["version"] or "")

    @property
    def metadata_path(self) -> str:
        return self._prefix + self._codec.metadata_request(self._spec).path

    def request(self, metadata: bytes, rows: int, seed: int = 0) -> Request:
        """Raises NoBody where the description makes no sense or has an input that numbers cannot fill."""
        from ferry_client.codec import PredictCall  # noqa: PLC0415
        from ferry_client.errors import ServingError  # noqa: PLC0415

        random = np.random.default_rng(seed)
        try:
            described = self._codec.metadata_response(self._response({}, metadata), self._spec)
            inputs = {name: _fill(tensor, rows, random) for name, tensor in described.inputs.items()}
            return self._codec.predict_request(PredictCall(self._spec, inputs, (), 60.0))
        except ServingError as error:
            raise NoBody(str(error)) from error


def _fill(tensor: TensorMetadata, rows: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Floats lie between 0 and 1; whole numbers are 0 or 1, which are words, pixels and classes in most models."""
    if tensor.dtype is None or tensor.shape is None or tensor.dtype.kind in "OSU":
        raise NoBody(f"Input {tensor.name!r} cannot be made up: say what to send with --body")
    first, *others = tensor.shape or (0,)
    if tensor.shape == ():
        shape: tuple[int, ...] = ()
    else:
        shape = (rows if first is None else first, *(_FREE_SIZE if size is None else size for size in others))
    values = random.random(shape) if tensor.dtype.kind not in "iub" else random.integers(0, 2, shape)
    return np.asarray(values, tensor.dtype)
