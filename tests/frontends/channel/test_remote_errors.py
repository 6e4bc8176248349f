from collections.abc import Iterator

import pytest

import app.batching.batch
import app.transports.http.replies
from app.core import errors
from app.core.errors import InferenceFailed, Overloaded, ServingError
from app.frontends.channel.remote_errors import decode_error, encode_error


def all_kinds(base: type[ServingError]) -> Iterator[type[ServingError]]:
    yield base
    for kind in base.__subclasses__():
        yield from all_kinds(kind)


@pytest.mark.parametrize("kind", list(all_kinds(ServingError)), ids=lambda kind: kind.__name__)
def test_every_kind_of_error_crosses_as_itself_or_its_nearest_base(kind: type[ServingError]) -> None:
    error = decode_error(*encode_error(kind.__new__(kind, "what happened")))  # some are made of more than a text
    assert str(error) == "what happened"
    assert isinstance(error, ServingError)
    assert issubclass(kind, type(error))
    assert error.retry_after_s == kind.retry_after_s
    if kind.__module__ == errors.__name__:
        assert type(error) is kind


def test_an_uneven_output_is_a_failed_inference() -> None:
    assert type(decode_error(*encode_error(app.batching.batch.RowCountMismatch("x")))) is InferenceFailed


def test_when_to_come_back_may_differ_from_the_kind() -> None:
    error = Overloaded("full")
    error.retry_after_s = 7.0
    seen = decode_error(*encode_error(error))
    assert isinstance(seen, Overloaded)
    assert (seen.retry_after_s, Overloaded.retry_after_s) == (7.0, 1.0)


def test_a_bug_stays_a_bug() -> None:
    seen = decode_error(*encode_error(KeyError("scores")))
    assert not isinstance(seen, ServingError)
    assert "KeyError('scores')" in str(seen)
