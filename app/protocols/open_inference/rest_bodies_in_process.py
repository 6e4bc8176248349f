"""Infer requests whose JSON is long, read in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from app.core.inference import Buffer
from app.protocols.open_inference.infer_call import InferCall
from app.protocols.open_inference.rest_bodies import Signatures, read_request
from app.protocols.open_inference.shared_memory import ReadRegion
from app.transports.http.long_bodies.reading_process import ReadingProcess

#: As `read_request`: its arguments without `most`.
ReadRequest = Callable[[Buffer, memoryview, Signatures, ReadRegion, Callable[[float], float]], InferCall]


class _InSharedMemory(Exception):
    """A tensor is in shared memory, which the reading process does not have."""


def read_in_process(process: ReadingProcess, check_regions: Callable[[], None]) -> ReadRequest:
    """A `read_request` that runs in `process`. A body that names shared memory is read by this process.

    It raises also TimeoutError and ProcessEnded: `process` does not answer.

    Args:
        check_regions: raises Unsupported if shared memory is switched off.
    """

    def read(
        head: Buffer, tail: memoryview, signatures: Signatures, region: ReadRegion, deadline: Callable[[float], float]
    ) -> InferCall:
        call: InferCall | None = process.ask(_read, memoryview(head), tail, dict(signatures))
        if call is None:
            check_regions()
            return read_request(head, tail, signatures, region, deadline)
        call.request.deadline_s = deadline(call.request.deadline_s)
        return call

    return read


def _read(_: None, head: memoryview, tail: memoryview, signatures: Signatures) -> InferCall | None:
    """The call, with the client's time-out in place of a deadline; None if it names shared memory."""
    try:
        return read_request(bytes(head), tail, signatures, _no_region, lambda timeout_s: timeout_s)
    except _InSharedMemory:
        return None


def _no_region(_: object) -> NoReturn:
    raise _InSharedMemory
