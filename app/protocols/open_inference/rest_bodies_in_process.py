"""Infer requests whose JSON is long, read in another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

from app.core.inference import Buffer
from app.protocols.open_inference.infer_call import InferCall
from app.protocols.open_inference.rest_bodies import Signatures, read_request
from app.protocols.open_inference.shared_memory import ReadRegion
from app.transports.http.long_bodies.reading_process import ReadingProcess


class ReadRequest(Protocol):
    """The signature of `read_request`."""

    def __call__(
        self,
        head: Buffer,
        tail: memoryview,
        signatures: Signatures,
        read: ReadRegion,
        deadline: Callable[[float], float],
    ) -> InferCall: ...


class _InSharedMemory(Exception):
    """A tensor is in shared memory, which the reading process does not have."""


@dataclass(frozen=True, slots=True)
class RequestsInProcess:
    """The requests whose bodies a reading process reads.

    Args:
        check_regions: raises Unsupported if shared memory is switched off.
    """

    process: ReadingProcess
    check_regions: Callable[[], None]

    def read_request(
        self,
        head: Buffer,
        tail: memoryview,
        signatures: Signatures,
        read: ReadRegion,
        deadline: Callable[[float], float],
    ) -> InferCall:
        """As the function of this name; this process reads a body that names shared memory.

        Raises:
            ServingError: as that function, and as `check_regions`.
            TimeoutError, ProcessEnded: the process does not answer.
        """
        call: InferCall | None = self.process.ask(_read, memoryview(head), tail, dict(signatures))
        if call is None:
            self.check_regions()
            return read_request(head, tail, signatures, read, deadline)
        call.request.deadline_s = deadline(call.request.deadline_s)
        return call


def _read(_: None, head: memoryview, tail: memoryview, signatures: Signatures) -> InferCall | None:
    """The call, with the client's time-out in place of a deadline; None if it names shared memory."""
    try:
        return read_request(bytes(head), tail, signatures, _no_region, lambda timeout_s: timeout_s)
    except _InSharedMemory:
        return None


def _no_region(_: object) -> NoReturn:
    raise _InSharedMemory
