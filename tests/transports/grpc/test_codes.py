"""Every error has a code."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message import DecodeError

from app.core import errors
from app.core.errors import Overloaded, ServingError
from app.transports.grpc.codes import GRPC_CODES, StatusCode, code_of, failure_of
from app.transports.http import replies as http


def subclasses(kind: type[ServingError]) -> Iterator[type[ServingError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


@pytest.mark.parametrize("kind", list(subclasses(ServingError)))
def test_every_error_has_a_code(kind: type[ServingError]) -> None:
    assert any(base in GRPC_CODES for base in kind.__mro__)
    assert code_of(kind) in GRPC_CODES.values()


def test_every_error_of_the_core_is_listed_itself() -> None:
    core = {each for each in subclasses(ServingError) if each.__module__ == errors.__name__}
    assert core <= GRPC_CODES.keys()


def test_a_special_error_has_its_nearest_bases_code() -> None:
    assert code_of(http.BodyTooLarge) is StatusCode.INVALID_ARGUMENT


def test_an_error_without_any_code_is_internal() -> None:
    assert code_of(ServingError) is StatusCode.INTERNAL


def test_retries_are_told_when() -> None:
    failure = failure_of(Overloaded("The queue is full"), "Predict")
    assert failure.code is StatusCode.UNAVAILABLE
    assert failure.metadata == (("grpc-retry-pushback-ms", "1000"),)


def test_a_bug_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    failure = failure_of(KeyError("secret"), "Predict")
    assert (failure.code, failure.text, failure.metadata) == (StatusCode.INTERNAL, "Internal error", ())
    assert "A bug answered Predict" in caplog.text
    assert "secret" in caplog.text


def test_what_does_not_parse_is_the_callers_fault() -> None:
    assert failure_of(DecodeError(), "Predict").code is StatusCode.INVALID_ARGUMENT


def test_any_text_can_be_sent() -> None:
    text = failure_of(ServingError("\udcff" + "é" * 3000), "Predict").text
    assert len(text.encode()) <= 2048
    assert text.startswith("\\udcff")


def test_codes_have_the_numbers_and_names_of_the_library() -> None:
    assert {each.name: each.value for each in StatusCode} == {each.name: each.value[0] for each in grpc.StatusCode}
