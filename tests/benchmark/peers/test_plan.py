from dataclasses import replace
from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from bench.peers.descriptor import find_peers
from bench.peers.plan import alternating, closed_s, common_rate, expected_s, open_s, rejection, run_s, start_s
from bench.support.workloads import WORKLOADS

PEERS = st.lists(st.text(min_size=1), min_size=1, unique=True)


@given(PEERS, st.integers(0, 6))
def test_each_peer_runs_once_a_round(peers: list[str], rounds: int) -> None:
    runs = list(alternating(peers, rounds))
    by_round = {number: [run.peer for run in group] for number, group in groupby(runs, lambda run: run.round)}
    assert by_round == dict.fromkeys(range(rounds), peers)


@given(st.lists(st.text(min_size=1), min_size=2, unique=True), st.integers(1, 6))
def test_no_peer_runs_twice_in_a_row(peers: list[str], rounds: int) -> None:
    assert all(one.peer != next_.peer for one, next_ in pairwise(alternating(peers, rounds)))


def test_the_common_rate_is_half_of_the_best_within_what_can_be_sent() -> None:
    assert common_rate([100, 1000], 3000) == 500
    assert common_rate([100, 10_000], 3000) == 3000


def test_a_slow_peer_is_measured_until_each_connection_got_some_answers() -> None:
    assert run_s(2, 64, 10_000) == 2
    assert run_s(2, 16, 16) == 4
    assert run_s(2, 64, 0) == run_s(2, 64, 1) == 8
    assert run_s(10, 64, 1) == 10


PEERS_OF_THE_BENCHMARK = find_peers()


def test_a_peer_that_cannot_take_part_has_a_reason() -> None:
    image, mlp = WORKLOADS["image-binary"], WORKLOADS["mlp"]
    assert rejection(PEERS_OF_THE_BENCHMARK["litserve"], image) == "has no binary form"
    assert rejection(PEERS_OF_THE_BENCHMARK["ferry_v2"], mlp) == "not made for this workload"
    assert rejection(PEERS_OF_THE_BENCHMARK["mosec"], image) == ""


def test_only_peers_that_take_part_take_time() -> None:
    image = WORKLOADS["image-binary"]
    mosec, litserve = PEERS_OF_THE_BENCHMARK["mosec"], PEERS_OF_THE_BENCHMARK["litserve"]
    assert expected_s([mosec, litserve], image) == expected_s([mosec], image)
    assert expected_s([mosec], image) == start_s(mosec) + image.rounds * closed_s(mosec, image)
    loop = PEERS_OF_THE_BENCHMARK["bare_loop"]
    assert closed_s(loop, image) == image.seconds < closed_s(mosec, image)
    open_loop = replace(image, open_rounds=2)
    assert expected_s([mosec], open_loop) == expected_s([mosec], image) + 2 * open_s(image)
