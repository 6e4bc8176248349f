from __future__ import annotations

import resource

import pytest

from app.transports import descriptors

INFINITE = resource.RLIM_INFINITY


def limited(soft: int, hard: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The process's limits, which are what was set last."""
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    return limits


@pytest.mark.parametrize("limit", [200, 256, 1024, 20_000, 1024**2, INFINITE])
def test_clients_leave_descriptors_for_models_files_and_children(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(limit, limit, monkeypatch)
    http, beyond = descriptors.http_descriptors(), descriptors.beyond_http_connections()
    least = 48 + 150 * 3 // 16
    assert limit == INFINITE or http + beyond + descriptors.grpc_connections() <= limit - least
    assert 1 <= descriptors.http_connections() <= min(http, 10_000)
    assert 1 <= beyond <= 64


def test_a_limit_below_what_a_server_needs_leaves_one_connection_each(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(30, 30, monkeypatch)
    assert descriptors.http_connections() == descriptors.grpc_connections() == 1


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 524_288, (65_536, 524_288)),
        (1024, INFINITE, (65_536, INFINITE)),
        (1024, 4096, (4096, 4096)),
        (200, 200, (200, 200)),
        (1024**2, 1024**2, (1024**2, 1024**2)),
        (INFINITE, INFINITE, (INFINITE, INFINITE)),
    ],
)
def test_the_limit_is_raised_as_far_as_it_serves(
    soft: int, hard: int, raised: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = limited(soft, hard, monkeypatch)
    descriptors.raise_limit()
    assert limits[-1] == raised
