"""Which requests must run alone, and why: the model writes state, its rows see each other, or a setting says so.

Such a request is one call, exactly once, with its own rows and no padding. A signature that writes state is called for
requests only: not to warm it up, measure or probe it. That it writes is known from its graph, the rest from calls
(row_probe.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from app.core.batch_sizes import BatchSizes
from app.core.events import RowsProbed
from app.core.inference import ModelSignature
from app.core.time_budget import TimeBudget
from app.core.value_kinds import Reach, inputs_beyond
from app.loading.budgeted_model import BudgetedModel
from app.loading.row_probe import probe_rows

Signatures = Mapping[str, ModelSignature]

#: Why requests do not share calls although nothing is known against it.
NOT_COMPARED = "there was no time or memory to compare rows that share calls"

#: Why requests with NaN or infinity do not share calls of a graph with loops.
ENDLESS = "its loops may go on for such values until other rows overflow, or without end"


class FoundRows(NamedTuple):
    """How requests for all outputs of a batchable signature run.

    alone: why each runs alone; empty if rows of several share calls.
    unproven: what was not tried of that, and why.
    in_budget: false if calls of these sizes were left out for lack of time or memory.
    finite_only: why those that hold NaN or infinity run alone all the same; empty if they do not.
    """

    alone: str
    unproven: str = ""
    in_budget: bool = True
    finite_only: str = ""

    def __str__(self) -> str:
        if self.alone:
            return f"each request runs alone: {self.alone}"
        finite_only = f"; those with NaN or infinity run alone: {self.finite_only}" if self.finite_only else ""
        return f"requests share calls{finite_only}" + (f"; not proven: {self.unproven}" if self.unproven else "")


class RowIndependence:
    """Finds it for the signatures of one version: `by_graph` before its first call, `by_probe` after warm-up.

    Args:
        wanted: the setting row_independence: 'probe', 'assume' or 'deny' by 'model' or 'model/signature'.

    Attributes:
        found: by signature; those that are not batchable are left out.
    """

    def __init__(self, model: str, wanted: Mapping[str, str]) -> None:
        self._model = model
        self._wanted = wanted
        self._told: dict[str, FoundRows] = {}
        self.found: dict[str, FoundRows] = {}

    @property
    def in_budget(self) -> bool:
        """Whether there was time and room to compare rows that share calls; otherwise batches may not be so large."""
        return all(found.in_budget or found.alone for found in self.found.values())

    def news(self, version: int) -> Iterator[RowsProbed]:
        """What was found since it was asked last."""
        for signature, found in self.found.items():
            if found != self._told.get(signature):
                self._told[signature] = found
                yield RowsProbed(self._model, version, signature, bool(found.alone), bool(found.unproven), str(found))

    def by_graph(self, signatures: Signatures) -> dict[str, ModelSignature]:
        """The signatures; those that write state, or that the setting denies to share calls, run alone."""
        return {name: self._by_graph(signature) for name, signature in signatures.items()}

    def by_probe(
        self, model: BudgetedModel, signatures: Signatures, sizes: BatchSizes, budget: TimeBudget
    ) -> dict[str, ModelSignature]:
        """The signatures; those whose rows see each other run alone. The budget is that of all calls."""
        with model.within(budget):
            return {name: self._by_probe(model, signature, sizes) for name, signature in signatures.items()}

    def alone_unless_proven(self, signatures: Signatures) -> dict[str, ModelSignature]:
        """The signatures; those of which calls were left out by the probe run alone. For where none follows."""
        proven = dict(signatures)
        for name in [name for name, found in self.found.items() if not found.in_budget]:
            alone = {**dict.fromkeys(signatures[name].outputs, NOT_COMPARED), **signatures[name].alone}
            proven[name] = replace(signatures[name], alone=alone)
            self.found[name] = FoundRows(proven[name].why_alone(), in_budget=False)
        return proven

    def _by_graph(self, signature: ModelSignature) -> ModelSignature:
        wanted = self._setting(signature.name)
        reason, unproven = "", "it was not probed"
        odd = signature.loops and wanted != "assume" and inputs_beyond(signature, Reach.FINITE)
        finite_only = ENDLESS if odd else ""
        if wanted == "assume":
            signature, unproven = replace(signature, writes=()), "row_independence says assume"
        elif signature.writes:
            reason = f"each call writes state ({', '.join(signature.writes)})"
        elif wanted == "deny":
            reason = "row_independence says deny"
        if signature.batchable:
            self.found[signature.name] = (
                FoundRows(reason) if reason else FoundRows("", unproven, finite_only=finite_only)
            )
        alone = dict.fromkeys(signature.outputs, reason) if reason else {}
        return replace(signature, alone=alone, finite_only=finite_only)

    def _by_probe(self, model: BudgetedModel, signature: ModelSignature, sizes: BatchSizes) -> ModelSignature:
        wanted = self._setting(signature.name) == "probe" and sizes.largest > 1
        if not wanted or not signature.batchable or signature.alone or signature.writes:
            return signature
        probed = probe_rows(model, signature, sizes)
        reasons = {output: f"output {output!r}: {reason}" for output, reason in probed.dependent.items()}
        finite_only = signature.finite_only or probed.finite_only
        found = FoundRows("", probed.unproven, probed.in_budget, finite_only)
        signature = replace(signature, alone=reasons, finite_only=finite_only, most_rows=probed.most_rows)
        self.found[signature.name] = FoundRows(signature.why_alone(), in_budget=probed.in_budget) if reasons else found
        return signature

    def _setting(self, signature: str) -> str:
        return setting_of(self._wanted, self._model, signature)


def setting_of(wanted: Mapping[str, str], model: str, signature: str) -> str:
    """What row_independence says of a signature."""
    return wanted.get(f"{model}/{signature}") or wanted.get(model, "probe")
