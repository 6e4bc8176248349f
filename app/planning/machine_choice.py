"""The choice among kinds of machines for a demand: by price, or by the number of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.planning.measured_curve import CannotPlan, MeasuredCurve
from app.planning.replica_plan import Demand, ReplicaPlan, cost_an_hour, plan


def check_machines(curves: Sequence[MeasuredCurve], price_of: Mapping[str, float] | None) -> None:
    """Raises CannotPlan unless the curves are of one model, each of another machine, which has a price if any has."""
    machines = [each.machine for each in curves]
    for each in curves:
        if machines.count(each.machine) > 1:
            raise CannotPlan(
                f"machine {each.machine!r} has several curves, but should have one; --machine names that of --model"
            )
        if price_of is not None and each.machine not in price_of:
            raise CannotPlan(f"the price list has no machine {each.machine!r}, only {', '.join(sorted(price_of))}")
        if each.model != curves[0].model:
            raise CannotPlan(f"the curves are of models {curves[0].model!r} and {each.model!r}, but should be of one")


def plans_on(
    curves: Sequence[MeasuredCurve], demand: Demand, price_of: Mapping[str, float] | None
) -> tuple[Sequence[ReplicaPlan], Sequence[str]]:
    """The plans for machines that can meet the demand, the best one first; and the reasons why the rest cannot.

    Raises CannotPlan if none can.
    """
    plans, reasons = list[ReplicaPlan](), list[str]()
    for each in curves:
        try:
            plans.append(plan(each, demand))
        except CannotPlan as error:
            reasons.append(str(error))
    if not plans:
        raise CannotPlan("; ".join(reasons))

    def rank(planned: ReplicaPlan) -> float:
        return planned.nodes if price_of is None else cost_an_hour(planned, price_of[planned.curve.machine])

    return sorted(plans, key=rank), reasons
