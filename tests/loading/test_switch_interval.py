import sys

import pytest

from app.loading.switch_interval import short_switch_interval


def test_threads_take_turns_more_often_until_the_last_block_ends() -> None:
    usual_s = sys.getswitchinterval()
    with short_switch_interval():
        with short_switch_interval():
            assert sys.getswitchinterval() == pytest.approx(0.0005, abs=1e-6)
        assert sys.getswitchinterval() == pytest.approx(0.0005, abs=1e-6)
    assert sys.getswitchinterval() == pytest.approx(usual_s, abs=1e-6)


def test_an_error_ends_it_too_and_a_shorter_interval_stays() -> None:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    try:
        with pytest.raises(ValueError, match="inside"):
            fail_inside()
        assert sys.getswitchinterval() == pytest.approx(0.0001, abs=1e-6)
    finally:
        sys.setswitchinterval(usual_s)


def fail_inside() -> None:
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(0.0001, abs=1e-6)
        raise ValueError("inside")
