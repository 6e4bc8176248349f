"""The settings of an autoscaler for a plan: KEDA's ScaledObject, or a HorizontalPodAutoscaler.

Both autoscalers ask for `ceil(sum of the metric over all replicas / target)` replicas. The metric is the busy share,
the share of time in which a replica's device computes, as long as it grows with the rate. It does not grow where a call
costs much beside its rows: such a server is busy nearly always, long before it is full, as a higher rate makes larger
batches. A target for the busy share would then never add a replica, so the metric is rows a second. The plan knows the
busy share at the usual rate and at the highest rate that a replica answers in time, and chooses by these.

`k8s/components` scale by the busy share, too: the seconds in which devices computed, divided by the number of calls
that a replica makes at the same time, which the plan knows. The seconds also grow while a call runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from typing import Any

from app.planning.measured_curve import CannotPlan
from app.planning.replica_plan import ReplicaPlan

#: The HorizontalPodAutoscaler (and KEDA, which makes one) does nothing while a metric is this close to its target:
#: --horizontal-pod-autoscaler-tolerance of kube-controller-manager, whose default this is.
_TOLERANCE = 0.1

#: The most replicas, as a multiple of the planned ones. Chosen: it bounds the costs of a wrong metric.
_MOST_TIMES = 2

#: The window of rates: four scrapes at Prometheus' usual 15 s. Chosen.
_WINDOW = "1m"

#: Names of objects in Kubernetes: RFC 1123's subdomains.
_OBJECT_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

#: Seconds that fewer replicas must have sufficed before one is taken away. Chosen: Kubernetes' own default.
_STABLE_S = 300


@dataclass(frozen=True, slots=True)
class Trigger:
    """A metric over all replicas, in PromQL, and its target for a replica at the planned rate.

    series: the selector of the counted series, which may not exist yet.
    """

    name: str
    query: str
    target: float
    series: str


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """The settings that follow from a plan.

    ongoing_requests: the unanswered requests of a replica at the usual rate, for autoscalers that count these (Ray
        Serve, Knative): the rate times the mean latency, by Little's law.
    scales_by_busy: whether the busy share is a trigger; if not, rows are the only one.
    """

    least: int
    most: int
    ongoing_requests: float
    scales_by_busy: bool
    triggers: tuple[Trigger, ...]


def autoscaling(planned: ReplicaPlan) -> Autoscaling:
    """The settings for a plan. Targets are the values at the usual rate: the capacity that is spared for a lost node
    also serves while one more replica starts.
    """
    demand, model = planned.demand, planned.curve.model
    spare = demand.spare_nodes * demand.node_replicas
    scales_by_busy = planned.at_most.busy > (1 + _TOLERANCE) * planned.usual.busy
    rows, offered = _series("ferry_batch_rows_sum", model), planned.replica_rate * demand.request_rows
    triggers = [Trigger("rows", _offered_rows(rows, model, demand.request_rows), offered, rows)]
    if scales_by_busy:
        busy = _series("ferry_device_busy_seconds_total", model)
        query = f"sum({_rate(busy)}) / {planned.curve.slots}"
        triggers.insert(0, Trigger("busy", query, planned.usual.busy, busy))
    ongoing = planned.replica_rate * planned.usual.mean_s
    return Autoscaling(1 + spare, _MOST_TIMES * planned.replicas, ongoing, scales_by_busy, tuple(triggers))


def check_names(deployment: str, prometheus: str) -> None:
    """Raises CannotPlan: a Deployment cannot have this name, or the address is no URL."""
    if not _OBJECT_NAME.fullmatch(deployment):
        raise CannotPlan(
            f"deployment is {deployment[:80]!r}, but should be a name of Kubernetes: 1 to 253 of a to z, 0 to 9, '-' "
            "and '.', with a letter or digit at both ends"
        )
    if not re.fullmatch(r"https?://[!-~]+", prometheus):
        raise CannotPlan(f"prometheus is {prometheus[:80]!r}, but should be a URL such as http://prometheus:9090")


def _offered_rows(computed: str, model: str, request_rows: int) -> str:
    """The query of offered rows: computed rows, and rows of rejected requests, which more replicas would compute."""
    rejected = _rate(_series("ferry_requests_total", model, 'code=~"503|UNAVAILABLE"'))
    return f"sum({_rate(computed)}) + {request_rows} * (sum({rejected}) or vector(0))"


def _series(metric: str, model: str, *more: str) -> str:
    escaped = model.replace("\\", r"\\").replace('"', r"\"")
    labels = ", ".join((f'model="{escaped}"', *more))
    return f"{metric}{{{labels}}}"


def _rate(series: str) -> str:
    return f"rate({series}[{_WINDOW}])"


def keda_manifest(scaling: Autoscaling, deployment: str, prometheus: str) -> dict[str, Any]:
    """A ScaledObject (keda.sh/v1alpha1). `prometheus`: the address at which KEDA asks Prometheus."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": deployment},
        "spec": {
            "scaleTargetRef": {"name": deployment},
            "minReplicaCount": scaling.least,
            "maxReplicaCount": scaling.most,
            "pollingInterval": 15,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _BEHAVIOUR}},
            "triggers": [
                {
                    "type": "prometheus",
                    "name": each.name,
                    "metricType": "AverageValue",
                    "metadata": {"serverAddress": prometheus, "query": each.query, "threshold": _decimal(each.target)},
                }
                for each in scaling.triggers
            ],
        },
    }


def hpa_manifest(scaling: Autoscaling, deployment: str) -> dict[str, Any]:
    """A HorizontalPodAutoscaler (autoscaling/v2) of external metrics, which prometheus-adapter makes of the queries."""
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": deployment},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "minReplicas": scaling.least,
            "maxReplicas": scaling.most,
            "behavior": _BEHAVIOUR,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": _external_name(each, deployment)},
                        "target": {"type": "AverageValue", "averageValue": _quantity(each.target)},
                    },
                }
                for each in scaling.triggers
            ],
        },
    }


def adapter_rules(scaling: Autoscaling, deployment: str) -> dict[str, Any]:
    """The rules of prometheus-adapter for `hpa_manifest`: a metric has the value of its query."""
    return {
        "externalRules": [
            {
                "seriesQuery": each.series,
                "name": {"as": _external_name(each, deployment)},
                "resources": {"namespaced": False},
                "metricsQuery": each.query,
            }
            for each in scaling.triggers
        ]
    }


_BEHAVIOUR = {
    "scaleUp": {"stabilizationWindowSeconds": 0},
    "scaleDown": {
        "stabilizationWindowSeconds": _STABLE_S,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    },
}


def _external_name(trigger: Trigger, deployment: str) -> str:
    """The name of a metric; it holds the Deployment's name, as one adapter serves all Deployments."""
    return f"ferry_scaling_{re.sub('[^a-z0-9]', '_', deployment)}_{trigger.name}"


def _thousandths(value: float) -> int:
    """A target in thousandths, the unit of both autoscalers. Rounded up: a lower target would ask for more."""
    return max(1, ceil(1000 * value - 1e-6))


def _quantity(value: float) -> str:
    """A target as Kubernetes writes quantities."""
    return f"{_thousandths(value)}m"


def _decimal(value: float) -> str:
    """A target without an exponent: YAML would read 5e+04 as a number, and KEDA takes texts only."""
    return f"{_thousandths(value) / 1000:.3f}".rstrip("0").rstrip(".")
