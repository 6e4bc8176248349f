import pytest

from bench.memory import growth_percent, watch


class Server:
    """Answers 250 requests a run; memory grows by 1 MiB each time."""

    def __init__(self) -> None:
        self.runs = 0

    def closed(self, connections: int, seconds: float) -> dict[str, float]:
        self.runs += 1
        return {"requests": 250, "rss_mib": 100.0 + self.runs, "rate": 125.0}


def test_growth_counts_from_the_first_tenth() -> None:
    assert growth_percent([100.0, 400.0, 105.0]) == pytest.approx(5)
    assert growth_percent([100.0, 90.0]) == pytest.approx(-10)


@pytest.mark.parametrize(("requests", "runs"), [(10_000, 40), (2500, 10), (100, 1)])
def test_memory_is_read_after_each_tenth_and_it_ends(requests: int, runs: int) -> None:
    server = Server()
    assert len(watch(server, requests, 64)) == 10  # type: ignore[arg-type]
    assert server.runs == runs
