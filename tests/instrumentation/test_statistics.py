from __future__ import annotations

from app.core.events import BatchExecuted, ModelStateChanged, RequestFinished, tell_all
from app.instrumentation.counts import Counts
from app.instrumentation.statistics import ModelStatistics
from tests.instrumentation.pipeline_events import pipeline_ended

NONE = {"count": 0, "ns": 0}


def batch(rows=4, queue_s=(0.5, 0.25), compute_s=2.0, failed=0, version=1):
    return BatchExecuted("m", version, "s", rows, 0, "idle", compute_s, queue_s, failed, 2 * failed)


def finished(code="200", seconds=3.0, signature="s"):
    return RequestFinished("p", code, "m", 1, signature, seconds)


def told(*events):
    return living(*events)[0]


def living(*events):
    """And how to tell it more."""
    counts = Counts()
    statistics = ModelStatistics(counts, clock=lambda: 1234.5678)
    tell = tell_all(counts.subscriptions, statistics.subscriptions)
    for event in events:
        tell(event)
    return statistics, tell


def test_what_never_ran_is_zero():
    document = told().document("m", 7)
    assert document == {
        "name": "m", "version": "7", "last_inference": 0, "inference_count": 0, "execution_count": 0,
        "inference_stats": dict.fromkeys(
            ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit",
             "cache_miss"], NONE,
        ),
        "response_stats": {}, "batch_stats": [], "memory_usage": [],
    }  # fmt: skip


def test_batches_are_counted_by_requests_and_by_size():
    document = told(batch(), batch(rows=1, queue_s=[0.0], compute_s=1.0), batch()).document("m", 1)
    assert document["inference_count"] == 9
    assert document["execution_count"] == 3
    assert document["last_inference"] == 1234567
    stats = document["inference_stats"]
    assert stats["queue"] == {"count": 5, "ns": 1_500_000_000}
    assert stats["compute_infer"] == {"count": 5, "ns": 9_000_000_000}
    assert stats["compute_input"] == stats["compute_output"] == {"count": 5, "ns": 0}
    assert [(each["batch_size"], each["compute_infer"]) for each in document["batch_stats"]] == [
        (1, {"count": 1, "ns": 1_000_000_000}),
        (4, {"count": 2, "ns": 4_000_000_000}),
    ]
    assert document["batch_stats"][1]["compute_input"] == {"count": 2, "ns": 0}


def test_the_time_of_a_batch_is_told_by_its_parts():
    one = batch(compute_s=2.0)._replace(input_s=0.25, output_s=0.5)
    document = told(one, one._replace(failed=1)).document("m", 1)
    parts = {"compute_input": 0.25, "compute_infer": 1.25, "compute_output": 0.5}
    for name, seconds in parts.items():
        assert document["inference_stats"][name] == {"count": 3, "ns": round(3e9 * seconds)}
        assert document["batch_stats"][0][name] == {"count": 2, "ns": round(2e9 * seconds)}


def test_requests_are_counted_by_their_answer():
    events = [finished(), finished("OK", 1.0), finished("400", 0.5), finished("INTERNAL", 0.5), finished("499", 1.0)]
    stats = told(*events).document("m", 1)["inference_stats"]
    assert stats["success"] == {"count": 2, "ns": 4_000_000_000}
    assert stats["fail"] == {"count": 3, "ns": 2_000_000_000}


def test_requests_that_compute_nothing_are_not_counted():
    assert told(finished(signature="")).document("m", 1)["inference_stats"]["success"] == NONE


def test_what_failed_was_not_computed():
    document = told(batch(failed=1), batch(failed=2)).document("m", 1)
    assert document["inference_count"] == 2
    assert document["execution_count"] == 2
    assert document["inference_stats"]["compute_infer"] == {"count": 1, "ns": 2_000_000_000}
    assert [each["compute_infer"]["count"] for each in document["batch_stats"]] == [1]


def test_versions_are_counted_apart_and_a_new_life_begins_at_zero():
    statistics, tell = living(batch(), finished(), finished("400"), batch(version=2))
    tell(ModelStateChanged("m", 1, "UNLOADING"))
    assert statistics.document("m", 1)["execution_count"] == 1
    tell(finished(seconds=1.0))
    assert statistics.document("m", 1)["inference_stats"]["success"] == {"count": 2, "ns": 4_000_000_000}
    tell(ModelStateChanged("m", 1, "END"))
    assert statistics.document("m", 1)["execution_count"] == 0
    assert statistics.document("m", 1)["inference_stats"]["success"] == NONE
    assert statistics.document("m", 1)["inference_stats"]["fail"] == NONE
    assert statistics.document("m", 2)["execution_count"] == 1
    tell(ModelStateChanged("m", 1, "LOADING"))
    tell(finished(seconds=0.5))
    assert statistics.document("m", 1)["inference_stats"]["success"] == {"count": 1, "ns": 500_000_000}


def test_names_that_come_and_go_take_no_memory():
    statistics, tell = living(ModelStateChanged("m", 1, "LOADING"), batch(), finished())
    for number in range(80):
        for state in ("LOADING", "END"):
            tell(ModelStateChanged(f"n{number}", 1, state))
    assert len(statistics._counts) == 65
    stats = statistics.document("m", 1)["inference_stats"]
    assert (stats["success"]["count"], stats["queue"]["count"]) == (1, 2)


def test_a_pipeline_has_an_execution_for_each_answered_request_and_no_batches():
    document = told(*[pipeline_ended()] * 2, pipeline_ended("failed"), pipeline_ended("cancelled")).document("p", 1)
    assert (document["inference_count"], document["execution_count"], document["batch_stats"]) == (8, 2, [])
    assert document["last_inference"] == 1234567
    stats = document["inference_stats"]
    assert stats["queue"] == {"count": 2, "ns": 8_000_000_000}
    assert stats["compute_infer"] == {"count": 2, "ns": 12_000_000_000}
    assert stats["compute_input"] == {"count": 2, "ns": 0}
