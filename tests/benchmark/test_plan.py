from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from bench.peers.plan import alternating, common_rate

PEERS = st.lists(st.text(min_size=1), min_size=1, unique=True)


@given(PEERS, st.integers(0, 6))
def test_each_peer_runs_once_a_round(peers: list[str], rounds: int) -> None:
    runs = list(alternating(peers, rounds))
    by_round = {number: [run.peer for run in group] for number, group in groupby(runs, lambda run: run.round)}
    assert by_round == dict.fromkeys(range(rounds), peers)


@given(st.lists(st.text(min_size=1), min_size=2, unique=True), st.integers(1, 6))
def test_nobody_runs_twice_in_a_row(peers: list[str], rounds: int) -> None:
    assert all(one.peer != next_.peer for one, next_ in pairwise(alternating(peers, rounds)))


def test_the_common_rate_is_half_of_the_best_within_what_can_be_sent() -> None:
    assert common_rate([100, 1000], 3000) == 500
    assert common_rate([100, 10_000], 3000) == 3000
