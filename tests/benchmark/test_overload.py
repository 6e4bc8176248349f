from collections import Counter

import pytest

from app.bench.load_connection import ServerReply
from app.bench.open_loop import OpenLoopResult
from bench.overload import FACTORS, Offer, Replies, figures_of, report
from bench.support.goals import all_met, goals_table, of_script

DEADLINE_S = 0.2


def offer(
    answered_s: list[float],
    *,
    expired_s: tuple[float, ...] = (),
    rejected: int = 0,
    silent: int = 0,
    rss_mib: float = 100,
) -> Offer:
    """One second of load."""
    replies = Replies()
    for latency_s in answered_s:
        replies.hear(ServerReply(200, {}, b""), latency_s)
    for latency_s in expired_s:
        replies.hear(ServerReply(504, {}, b""), latency_s)
    for _ in range(rejected):
        replies.hear(ServerReply(503, {"retry-after": "1"}, b""), 0.001)
    failures = Counter({"status 504": len(expired_s), "status 503": rejected, "no answer in time": silent})
    intended = len(answered_s) + len(expired_s) + rejected + silent
    load = OpenLoopResult(intended, 1.0, intended, sorted(answered_s), [0.0] * intended, +failures)
    return Offer.of(load, replies, DEADLINE_S, 0.5, rss_mib)


def test_goodput_counts_answers_within_the_deadline() -> None:
    assert offer([0.1] * 90 + [0.3] * 10, rejected=500).goodput == 90


def test_requests_that_were_not_rejected_count_as_accepted_even_if_they_failed() -> None:
    assert offer([0.1] * 100, rejected=500).accepted_p99_s == 0.1
    assert offer([0.1] * 97, expired_s=(0.21,) * 3).accepted_p99_s == 0.21
    assert offer([0.1] * 97, silent=3).accepted_p99_s == float("inf")


def test_rejections_without_retry_after_are_counted() -> None:
    assert offer([], rejected=3).without_retry_after == 0
    replies = Replies()
    replies.hear(ServerReply(503, {}, b""), 0.001)
    assert replies.without_retry_after == 1


def a_round(*goodputs: int, rss_mib: float = 100) -> list[Offer]:
    rejected = (0, 100, 1000)
    return [offer([0.1] * good, rejected=each, rss_mib=rss_mib) for good, each in zip(goodputs, rejected, strict=True)]


def test_goodput_is_kept_if_none_is_far_below_the_peak_of_its_round() -> None:
    figures = figures_of([a_round(100, 110, 99), a_round(100, 80, 100)], DEADLINE_S, 0.0)
    assert figures["goodput_kept"] == [0.9, 0.8]
    assert figures["p99_to_deadline"] == pytest.approx([0.5, 0.5])
    assert figures["rejected_p99_ms"] == pytest.approx([1, 1])


def test_memory_is_compared_with_the_first_offer() -> None:
    first = a_round(100, 100, 100)
    second = a_round(100, 100, 100, rss_mib=112)
    assert figures_of([first, second], DEADLINE_S, 0.0)["rss_growth_percent"] == pytest.approx([0, 12])


@pytest.mark.parametrize(("goodput", "expired", "met"), [(95, 0.0, True), (80, 0.0, False), (95, 1.0, False)])
def test_the_goals_say_whether_it_held(goodput: int, expired: float, met: bool) -> None:
    results = of_script("overload", figures_of([a_round(100, 100, goodput)], DEADLINE_S, expired))
    assert all_met(results) == met
    assert len(goals_table(results, measured_only=True)) == 2 + 6


def test_the_report_has_a_line_for_each_offer() -> None:
    assert len(report([a_round(100, 110, 99)] * 2)) == 2 + 2 * len(FACTORS)
