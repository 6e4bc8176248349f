import numpy as np
import pytest

from bench.support.answers import Sample, WrongAnswer
from bench.support.forms import FORMS

SAMPLE = Sample(FORMS["v1-json"], "x", np.zeros(2, np.float32), np.array([1.0, 2.0], np.float32))


def test_the_right_answer_passes() -> None:
    SAMPLE.check(200, {}, b'{"predictions": [[1.0, 2.0]]}')


@pytest.mark.parametrize(
    "content",
    [b'{"predictions": [[2.0, 1.0]]}', b'{"predictions": []}', b"{}", b"[]", b"", b'{"predictions": [["a"]]}'],
)
def test_any_other_does_not(content: bytes) -> None:
    with pytest.raises(WrongAnswer) as caught:
        SAMPLE.check(200, {}, content)
    assert not caught.value.not_yet


def test_a_loading_server_may_be_asked_again() -> None:
    with pytest.raises(WrongAnswer, match="503") as caught:
        SAMPLE.check(503, {}, b"")
    assert caught.value.not_yet
