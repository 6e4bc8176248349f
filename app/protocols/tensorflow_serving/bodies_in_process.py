"""Bodies of predict that another process reads, by the same functions as this one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from app.codecs.body_format import BodyFormat, PredictBody, RowGroup, no_inputs
from app.codecs.format_registry import BODY_FORMATS
from app.core.inference import Array, ModelSignature
from app.transports.http.long_bodies.reading_process import ReadingProcess


def read_in_process(process: ReadingProcess, body_format: BodyFormat, body: bytes, max_bytes: int) -> PredictBody:
    """The content of a body that `body_format.read` reads in `process`."""
    process.keep(_read, BODY_FORMATS.index(body_format), memoryview(body), max_bytes)
    facts, has_groups = process.ask(_facts)
    groups = partial(process.ask, _row_groups) if has_groups else None
    return replace(facts, inputs=partial(process.ask, _inputs), row_groups=groups)


def _read(number: int, body: memoryview, max_bytes: int) -> PredictBody:
    return BODY_FORMATS[number].read(bytes(body), max_bytes)


def _facts(body: PredictBody) -> tuple[PredictBody, bool]:
    """The body without its functions, which cannot be sent, and whether it has `row_groups`."""
    return replace(body, inputs=no_inputs, row_groups=None), body.row_groups is not None


def _inputs(body: PredictBody, signature: ModelSignature) -> dict[str, Array]:
    return body.inputs(signature)


def _row_groups(body: PredictBody, signature: ModelSignature) -> list[RowGroup]:
    return body.row_groups(signature) if body.row_groups is not None else []
