"""What tests of protocols that read long bodies share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.transports.http.long_bodies.reading_processes import ReadingProcesses


@pytest.fixture(scope="module")
def readers() -> Iterator[ReadingProcesses]:
    readers = ReadingProcesses()
    yield readers
    readers.close()
