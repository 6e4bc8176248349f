"""Bodies that another process reads, by the same functions as this one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from app.codecs.body_format import BodyFormat, PredictBody
from app.codecs.format_registry import BODY_FORMATS
from app.codecs.row_groups import RowGroup
from app.core.inference import Array, ModelSignature
from app.protocols.tensorflow_serving.examples import ExamplesMethod
from app.protocols.tensorflow_serving.rest_examples import ExamplesBody, ExamplesCall
from app.transports.http.long_bodies.reading_process import ReadingProcess

# --- predict ---


def format_in_process(body_format: BodyFormat, process: ReadingProcess) -> BodyFormat:
    """The format, with a `read` that reads a body in `process`."""
    return replace(body_format, read=partial(_read_in_process, process, BODY_FORMATS.index(body_format)))


def _read_in_process(process: ReadingProcess, number: int, body: bytes, max_bytes: int) -> PredictBody:
    process.keep(_read, number, memoryview(body), max_bytes)
    facts, has_groups = process.ask(_facts)
    groups = partial(process.ask, _row_groups) if has_groups else None
    return replace(facts, inputs=partial(process.ask, _inputs), row_groups=groups)


def _read(number: int, body: memoryview, max_bytes: int) -> PredictBody:
    return BODY_FORMATS[number].read(bytes(body), max_bytes)


def _facts(body: PredictBody) -> tuple[PredictBody, bool]:
    """The body without its functions, which cannot be sent, and whether it has `row_groups`."""
    return replace(body, inputs=_not_sent, row_groups=None), body.row_groups is not None


def _not_sent(_: ModelSignature) -> dict[str, Array]:
    raise NotImplementedError


def _inputs(body: PredictBody, signature: ModelSignature) -> dict[str, Array]:
    return body.inputs(signature)


def _row_groups(body: PredictBody, signature: ModelSignature) -> list[RowGroup]:
    return body.row_groups(signature) if body.row_groups is not None else []


# --- classify and regress ---


class ExamplesInProcess:
    """An `ExamplesBody` in another process. Raises InvalidRequest."""

    def __init__(self, process: ReadingProcess, body: bytes) -> None:
        self._process = process
        process.keep(_examples_body, memoryview(body))

    def signature_name(self) -> str:
        name: str = self._process.ask(ExamplesBody.signature_name)
        return name

    def call(self, method: ExamplesMethod, signature: ModelSignature) -> ExamplesCall:
        call: ExamplesCall = self._process.ask(ExamplesBody.call, method, signature)
        return call


def _examples_body(body: memoryview) -> ExamplesBody:
    return ExamplesBody(bytes(body))
