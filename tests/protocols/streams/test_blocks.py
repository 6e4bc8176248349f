"""A long line of a stream is read in another process, and answered as any other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import pytest

from app.codecs.body_format import PredictBody
from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature
from app.protocols.streams import blocks
from app.protocols.streams.blocks import BlockPredictor
from app.protocols.streams.lines import Block
from app.transports.http.http_api import LONG_BODY_BYTES
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from tests.support.protocol_fakes import echo_model
from tests.support.waiting import HANG_S

PADDING = b" " * LONG_BODY_BYTES


def answer(lines: Sequence[bytes], readers: ReadingProcesses | None, resolve: Any = None) -> bytes:
    resolve = resolve or (lambda: echo_model("float32", (None, None)))
    predictor = BlockPredictor(resolve, PredictBody(_no_inputs), HANG_S, time.monotonic, readers=readers)
    return asyncio.run(predictor.answer(Block(1, lines)))


def _no_inputs(_: ModelSignature) -> dict[str, Array]:
    raise NotImplementedError


@pytest.mark.parametrize(
    "lines",
    [[b"[1.5, 2]"], [b"[NaN]"], [b"["], [b'"a"'], [b"[1]", b"[2]"], [b"[1]", b"[2, 3]"], [b"[1]", b"wrong", b"[3]"]],
)
def test_long_lines_are_answered_equally(readers: ReadingProcesses, lines: list[bytes]) -> None:
    long = [line + PADDING for line in lines]
    assert answer(long, readers) == answer(long, None)


def test_this_process_parses_no_long_line_and_every_short_one(
    readers: ReadingProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_here(*_: object) -> NoReturn:
        raise InvalidRequest("parsed in this process")

    monkeypatch.setattr(blocks, "read_rows", not_here)
    assert answer([b"[1.5]" + PADDING], readers) == b'{"prediction":[1.5]}\n'
    assert b"parsed in this process" in answer([b"[1.5]"], readers)


def test_a_long_line_is_for_the_version_that_there_is_when_it_was_read(readers: ReadingProcesses) -> None:
    versions = [echo_model("float32", (None, None)) for _ in range(2)]
    later = iter(versions)
    answer([b"[1.5]" + PADDING], readers, lambda: next(later))
    assert [len(cast(Any, version).requests) for version in versions] == [0, 1]
