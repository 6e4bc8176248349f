"""The settings of autoscalers: played by the autoscaler's own formula on what a plan expects."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.instrumentation.metric_definitions import FERRY_METRICS
from app.planning.autoscaling import (
    Autoscaling,
    Trigger,
    adapter_rules,
    autoscaling,
    check_names,
    hpa_manifest,
    keda_manifest,
)
from app.planning.measured_curve import CannotPlan
from app.planning.replica_plan import Demand, ReplicaPlan, plan
from tests.planning.curves import curve_of

#: A device whose calls cost little beside their rows: it is busy in proportion to the rate.
BY_ROWS = curve_of(0.0001, 0.002, sizes=(1, 2, 4, 8))
#: One whose calls cost much: it is busy nearly always.
BY_CALLS = curve_of(0.008, 0.0008)


def planned_for(rows: bool, rate: float = 3000.0) -> ReplicaPlan:
    return plan(BY_ROWS if rows else BY_CALLS, Demand(rate, 0.1, spare_nodes=2))


def desired(metric: float, target: float) -> int:
    """Of the HorizontalPodAutoscaler, for a sum over all replicas (AverageValue)."""
    return ceil(metric / target - 1e-9)


@pytest.mark.parametrize("rows", [True, False])
def test_the_planned_rate_asks_for_the_planned_replicas(rows: bool) -> None:
    planned = planned_for(rows)
    scaling = autoscaling(planned)
    sums = {"rows": planned.demand.rate, "busy": planned.replicas * planned.usual.busy}
    for each in scaling.triggers:
        assert desired(sums[each.name], each.target) == planned.replicas
    assert (scaling.least, scaling.most) == (3, 2 * planned.replicas)


def test_twice_the_rate_asks_for_twice_the_replicas_by_some_trigger() -> None:
    for rows in (True, False):
        planned = planned_for(rows)
        (trigger,) = [each for each in autoscaling(planned).triggers if each.name == "rows"]
        assert desired(2 * planned.demand.rate, trigger.target) == 2 * planned.replicas


def test_the_busy_share_is_a_trigger_only_where_it_grows_with_the_rate() -> None:
    assert [each.name for each in autoscaling(planned_for(True)).triggers] == ["busy", "rows"]
    flat = planned_for(False)
    assert [each.name for each in autoscaling(flat).triggers] == ["rows"]
    assert flat.usual.busy > 0.95  # though a replica could take more


def test_unanswered_requests_are_littles_law() -> None:
    planned = planned_for(False)
    assert autoscaling(planned).ongoing_requests == pytest.approx(planned.replica_rate * planned.usual.mean_s)


def test_queries_name_metrics_and_labels_that_there_are() -> None:
    known = {each.name: set(each.labels) for each in FERRY_METRICS}
    for rows in (True, False):
        for trigger in autoscaling(planned_for(rows)).triggers:
            selectors = re.findall(r"(ferry_\w+)\{([^}]*)\}", trigger.query)
            assert selectors
            for metric, labels in selectors:
                name = metric.removesuffix("_sum")
                assert set(re.findall(r"(\w+)=", labels)) <= known[name]


def test_a_models_name_is_quoted_in_queries() -> None:
    odd = replace(BY_ROWS, model='a"b\\c[d')
    scaling = autoscaling(plan(odd, Demand(100.0, 0.1)))
    labels = r'model="a\"b\\c[d"'
    assert all(labels in trigger.query for trigger in scaling.triggers)
    rules = adapter_rules(scaling, "ferry")["externalRules"]
    assert [rule["seriesQuery"] for rule in rules] == [
        f"ferry_device_busy_seconds_total{{{labels}}}",
        f"ferry_batch_rows_sum{{{labels}}}",
    ]


def test_the_busy_share_is_that_of_the_components() -> None:
    """One measure for what is planned and what k8s/components go by: the seconds in which devices were kept busy."""
    (busy, _) = autoscaling(planned_for(True)).triggers
    assert busy.query == 'sum(rate(ferry_device_busy_seconds_total{model="m"}[1m])) / 1'
    components = Path(__file__).parents[2] / "k8s/components"
    for name in ("autoscaling-keda/scaledobject.yaml", "autoscaling-hpa/adapter-rules.yaml"):
        text = (components / name).read_text()
        assert "rate(ferry_device_busy_seconds_total{" in text
        assert "ferry_compute_seconds" not in text


def test_targets_are_thousandths_rounded_up_and_no_numbers_to_any_reader_of_yaml() -> None:
    """Rounded down a target asks for a replica more; 5e+04 is a number to Kubernetes, and KEDA takes texts only."""
    for target, quantity, threshold in (
        (50_000.0, "50000000m", "50000"), (0.4092, "410m", "0.41"), (1e-5, "1m", "0.001"), (0.7, "700m", "0.7"),
        (428.571428, "428572m", "428.572"),
    ):  # fmt: skip
        scaling = Autoscaling(1, 2, 1.0, False, (Trigger("rows", "q", target, "s"),))
        (metric,) = hpa_manifest(scaling, "ferry")["spec"]["metrics"]
        assert metric["external"]["target"]["averageValue"] == quantity
        (trigger,) = keda_manifest(scaling, "ferry", "http://p")["spec"]["triggers"]
        assert trigger["metadata"]["threshold"] == threshold


def test_deployments_have_metrics_of_their_own() -> None:
    scaling = scaling_of(True)
    names = [rule["name"]["as"] for each in ("a-1", "b.2") for rule in adapter_rules(scaling, each)["externalRules"]]
    assert names == [
        "ferry_scaling_a_1_busy",
        "ferry_scaling_a_1_rows",
        "ferry_scaling_b_2_busy",
        "ferry_scaling_b_2_rows",
    ]


@pytest.mark.parametrize("name", ["", "a[b", "Shop", "-a", "a-", "a..b", "a" * 254, "a\n", "é"])
def test_a_name_that_no_deployment_can_have_is_told(name: str) -> None:
    with pytest.raises(CannotPlan, match=r"^deployment is .*, but should be a name of Kubernetes"):
        check_names(name, "http://p")


def test_a_prometheus_without_an_address_is_told() -> None:
    for wrong in ("", "prometheus:9090", "ftp://p", "http://", "http://a b"):
        with pytest.raises(CannotPlan, match=r"^prometheus is .*, but should be a URL such as http://prometheus:9090$"):
            check_names("ferry", wrong)
    check_names("01.a-b", "https://p:9090/prometheus")


def scaling_of(rows: bool) -> Autoscaling:
    return autoscaling(planned_for(rows))


@pytest.mark.parametrize("rows", [True, False])
def test_kubernetes_accepts_the_autoscaler(rows: bool) -> None:
    manifest = yaml.safe_load(yaml.safe_dump(hpa_manifest(scaling_of(rows), "ferry")))
    kubernetes_validate.validate(manifest, "1.32", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**manifest, "spec": {**manifest["spec"], "maxPods": 3}}, "1.32", strict=True)


def test_prometheus_adapter_makes_every_metric_that_the_autoscaler_asks_for() -> None:
    scaling = scaling_of(True)
    asked = {each["external"]["metric"]["name"] for each in hpa_manifest(scaling, "ferry")["spec"]["metrics"]}
    rules: list[dict[str, Any]] = adapter_rules(scaling, "ferry")["externalRules"]
    assert {rule["name"]["as"] for rule in rules} == asked
    assert [rule["metricsQuery"] for rule in rules] == [each.query for each in scaling.triggers]
    assert all(re.fullmatch(r'ferry_\w+\{model="m"\}', rule["seriesQuery"]) for rule in rules)


def test_keda_asks_prometheus_for_each_trigger() -> None:
    scaling = scaling_of(True)
    spec = keda_manifest(scaling, "shop", "http://prometheus:9090")["spec"]
    assert spec["scaleTargetRef"] == {"name": "shop"}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (scaling.least, scaling.most)
    for trigger, shown in zip(scaling.triggers, spec["triggers"], strict=True):
        assert shown["metricType"] == "AverageValue"
        assert shown["metadata"]["query"] == trigger.query
        assert 0 <= float(shown["metadata"]["threshold"]) - trigger.target <= 0.001
