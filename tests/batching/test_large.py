import numpy as np
import pytest

from app.batching.batch import Answer
from app.batching.large import cut, join, part_replies
from app.errors import InferenceFailed
from app.inference import BatchTiming
from tests.fakes import FakeReply


def answer(values: list[list[float]], queue_s: float = 0.0) -> Answer:
    return Answer({"y": np.array(values, np.float32)}, BatchTiming(queue_s, 1.0, len(values)))


def test_cut_and_join_are_inverse() -> None:
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    parts = list(cut({"x": x}, 7, 3))
    assert [rows for _, rows in parts] == [3, 3, 1]
    joined = join([answer(part["x"].tolist(), rows) for part, rows in parts], [3, 3, 1])
    np.testing.assert_array_equal(joined.outputs["y"], x)
    assert joined.timing == BatchTiming(3, 3.0, 3)


def test_the_whole_is_answered_when_every_part_is_and_in_their_order() -> None:
    whole = FakeReply()
    first, second = part_replies(whole, [1, 1])
    second.set_result(answer([[2.0]]))
    assert second.done()
    assert second.exception() is None
    assert not first.done()
    first.set_result(answer([[1.0]]))
    (found,) = whole.answers
    assert isinstance(found, Answer)
    assert found.outputs["y"].tolist() == [[1.0], [2.0]]
    assert not first.cancelled()


def test_one_part_that_fails_answers_for_all() -> None:
    whole = FakeReply()
    first, second = part_replies(whole, [1, 1])
    first.set_exception(InferenceFailed("no"))
    assert second.done()
    assert second.exception() is whole.exception()


@pytest.mark.parametrize("second", [[[1.0, 2.0]], [[1.0], [2.0]], []])
def test_parts_that_do_not_fit_together_are_refused(second: list[list[float]]) -> None:
    whole = FakeReply()
    replies = part_replies(whole, [1, 1])
    replies[0].set_result(answer([[1.0]]))
    replies[1].set_result(answer(second))
    (error,) = whole.answers
    assert isinstance(error, InferenceFailed)
    assert str(error).endswith("send at most 1 rows")
