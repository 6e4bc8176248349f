import pytest

from bench.memory import growth_percent, watch


class Server:
    """Answers 250 requests a second; memory grows by 1 MiB each time that it is pressed."""

    def __init__(self) -> None:
        self.pressed_s: list[float] = []

    def press(self, seconds: float) -> dict[str, float]:
        self.pressed_s.append(seconds)
        return {"requests": round(250 * seconds), "rss_mib": 100.0 + len(self.pressed_s), "rate": 250.0}


def test_growth_counts_from_the_first_tenth() -> None:
    assert growth_percent([100.0, 400.0, 105.0]) == pytest.approx(5)
    assert growth_percent([100.0, 90.0]) == pytest.approx(-10)


def test_after_the_first_second_a_run_lasts_until_the_next_tenth() -> None:
    server = Server()
    assert watch(server.press, 10_000) == [102.0 + n for n in range(10)]
    assert server.pressed_s == [1, 3, *[4] * 9]


@pytest.mark.parametrize("requests", [2500, 100, 1])
def test_a_run_lasts_at_least_a_second_and_it_ends(requests: int) -> None:
    server = Server()
    assert len(watch(server.press, requests)) == 10
    assert set(server.pressed_s) == {1}
