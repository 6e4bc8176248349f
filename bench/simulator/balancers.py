"""How load balancers choose a replica for a request: by name, for the simulator.

| name | who does so |
|---|---|
| random | kube-proxy for a connection per request; Envoy's RANDOM |
| round robin | nginx's default; gRPC's `round_robin` |
| least of two | Envoy's LEAST_REQUEST: of two replicas, drawn at random, the one with fewer unanswered requests |
| least request | nginx's `least_conn`, haproxy's `leastconn`: of all |
| N connections | a Service, for kept connections of HTTP and for gRPC: each stays with the replica it was made to |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

#: Says which replica gets the next request. Args: the unanswered requests of each.
Balancer = Callable[[Sequence[int]], int]


def at_random(random: np.random.Generator, replicas: int) -> Balancer:
    return _drawn(lambda: random.integers(replicas, size=_AT_ONCE))


def round_robin(random: np.random.Generator, replicas: int) -> Balancer:
    last = int(random.integers(replicas))

    def choose(_: Sequence[int]) -> int:
        nonlocal last
        last = (last + 1) % replicas
        return last

    return choose


def least_of_two(random: np.random.Generator, replicas: int) -> Balancer:
    first, second = at_random(random, replicas), at_random(random, replicas)

    def choose(unanswered: Sequence[int]) -> int:
        one, other = first(unanswered), second(unanswered)
        return one if unanswered[one] <= unanswered[other] else other

    return choose


def least_request(random: np.random.Generator, replicas: int) -> Balancer:
    begin = at_random(random, replicas)

    def choose(unanswered: Sequence[int]) -> int:
        """Of equal ones any, so that the first is not preferred."""
        shift = begin(unanswered)
        return (min(range(replicas), key=lambda place: unanswered[(place + shift) % replicas]) + shift) % replicas

    return choose


def sticky(random: np.random.Generator, replicas: int, *, connections: int) -> Balancer:
    """Each request comes over one of so many connections, all of them equally busy."""
    replica_of = random.integers(replicas, size=connections)
    return _drawn(lambda: replica_of[random.integers(connections, size=_AT_ONCE)])


BALANCERS: dict[str, Callable[[np.random.Generator, int], Balancer]] = {
    "random": at_random,
    "round robin": round_robin,
    "least of two": least_of_two,
    "least request": least_request,
    "256 connections": partial(sticky, connections=256),
    "32 connections": partial(sticky, connections=32),
    "8 connections": partial(sticky, connections=8),
}

#: Numbers that are drawn at once: each by itself takes longer than the rest of a request. Chosen.
_AT_ONCE = 4096


def _drawn(draw: Callable[[], np.ndarray]) -> Balancer:
    drawn: list[int] = []

    def choose(_: Sequence[int]) -> int:
        if not drawn:
            drawn.extend(draw().tolist())
        return drawn.pop()

    return choose
