"""What an autoscaler has to be told so that it keeps to a plan: KEDA's ScaledObject, or a HorizontalPodAutoscaler.

Both ask for `ceil(sum of the metric over all replicas / target)` replicas. Which metric says how full a replica is?
The share of time in which its device is busy, as long as that grows with the rate. But a batching server whose calls
cost much beside their rows is busy nearly always, long before it is full: at a higher rate its batches grow, not the
share. Then no target on it would ever ask for one replica more, and rows a second are the metric. The plan knows the
share at the usual rate and at the most that a replica answers in time, and so which case it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.planning.replica_plan import ReplicaPlan

#: The HorizontalPodAutoscaler (and KEDA, which makes one) does nothing while a metric is this close to its target:
#: --horizontal-pod-autoscaler-tolerance of kube-controller-manager, whose default this is.
_TOLERANCE = 0.1

#: Times the planned replicas that there are at most. Chosen: the bill of a mistake has an end.
_MOST = 2

#: Seconds over which rates are taken: four scrapes at Prometheus' usual 15 s. Chosen.
_WINDOW = "1m"

#: Seconds that fewer replicas must have sufficed before one is taken away. Chosen: Kubernetes' own default.
_STABLE_S = 300


@dataclass(frozen=True, slots=True)
class Trigger:
    """A metric over all replicas, in PromQL, and its value for each replica at the planned rate."""

    name: str
    query: str
    target: float


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """The settings that follow from a plan.

    ongoing_requests: those that a replica has unanswered at the usual rate, for autoscalers that count these (Ray
        Serve, Knative): the rate times the mean latency, by Little's law.
    busy_tells: whether the busy share is a metric to scale by; if not, rows are the only trigger.
    """

    least: int
    most: int
    ongoing_requests: float
    busy_tells: bool
    triggers: tuple[Trigger, ...]


def autoscaling(planned: ReplicaPlan) -> Autoscaling:
    """Targets are those of the usual rate: the room for a lost node is the room while one more replica starts."""
    demand, model = planned.demand, planned.curve.model
    spare = demand.spare_nodes * demand.node_replicas
    busy_tells = planned.at_most.busy > (1 + _TOLERANCE) * planned.usual.busy
    triggers = [Trigger("rows", _offered_rows(model, demand.request_rows), planned.replica_rate * demand.request_rows)]
    if busy_tells:
        busy = f"sum({_rate('ferry_compute_seconds_sum', model)}) / {planned.curve.slots}"
        triggers.insert(0, Trigger("busy", busy, planned.usual.busy))
    ongoing = planned.replica_rate * planned.usual.mean_s
    return Autoscaling(1 + spare, _MOST * planned.replicas, ongoing, busy_tells, tuple(triggers))


def _offered_rows(model: str, request_rows: int) -> str:
    """Those that are computed, and those of requests that are rejected, which more replicas would compute."""
    rejected = _rate("ferry_requests_total", model, 'code=~"503|UNAVAILABLE"')
    return f"sum({_rate('ferry_batch_rows_sum', model)}) + {request_rows} * (sum({rejected}) or vector(0))"


def _rate(metric: str, model: str, *more: str) -> str:
    escaped = model.replace("\\", r"\\").replace('"', r"\"")
    labels = ", ".join((f'model="{escaped}"', *more))
    return f"rate({metric}{{{labels}}}[{_WINDOW}])"


def keda_manifest(scaling: Autoscaling, deployment: str, prometheus: str) -> dict[str, Any]:
    """A ScaledObject (keda.sh/v1alpha1). Args: prometheus: the address that KEDA asks."""
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
                    "metadata": {"serverAddress": prometheus, "query": each.query, "threshold": f"{each.target:.4g}"},
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
                        "metric": {"name": _external_name(each)},
                        "target": {"type": "AverageValue", "averageValue": _quantity(each.target)},
                    },
                }
                for each in scaling.triggers
            ],
        },
    }


def adapter_rules(scaling: Autoscaling) -> dict[str, Any]:
    """The rules of prometheus-adapter for `hpa_manifest`: each metric is what its query finds."""
    return {
        "externalRules": [
            {
                "seriesQuery": each.query.partition("rate(")[2].partition("[")[0],
                "name": {"as": _external_name(each)},
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


def _external_name(trigger: Trigger) -> str:
    return f"ferry_scaling_{trigger.name}"


def _quantity(value: float) -> str:
    """As Kubernetes writes it: in thousandths, rounded up."""
    return f"{max(1, round(1000 * value))}m"
