"""Which requests must run alone, and why: the model writes state, its rows see each other, or a setting says so.

Such a request is one call, exactly once, with its own rows and no padding. A signature that writes state is called for
requests only: not to warm it up, measure or probe it. That it writes is known from its graph, the rest from calls
(row_probe.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from app.core.batch_sizes import BatchSizes
from app.core.inference import ModelSignature
from app.core.time_budget import TimeBudget
from app.loading.row_probe import probe_rows
from app.runtime import LoadedModel

Signatures = Mapping[str, ModelSignature]


class FoundRows(NamedTuple):
    """How requests for all outputs of a batchable signature run.

    alone: why each runs alone; empty if rows of several share calls.
    unproven: what was not tried of that, and why.
    in_time: false if calls of these sizes were left out for lack of time.
    """

    alone: str
    unproven: str = ""
    in_time: bool = True

    def __str__(self) -> str:
        if self.alone:
            return f"each request runs alone: {self.alone}"
        return f"requests share calls; not proven: {self.unproven}" if self.unproven else "requests share calls"


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
        self.found: dict[str, FoundRows] = {}

    @property
    def in_time(self) -> bool:
        """Whether there was time to compare rows that share calls; otherwise batches may not be so large."""
        return all(found.in_time or found.alone for found in self.found.values())

    def by_graph(self, signatures: Signatures) -> dict[str, ModelSignature]:
        """The signatures; those that write state, or that the setting denies to share calls, run alone."""
        return {name: self._by_graph(signature) for name, signature in signatures.items()}

    def by_probe(
        self, loaded: LoadedModel, signatures: Signatures, sizes: BatchSizes, budget: TimeBudget
    ) -> dict[str, ModelSignature]:
        """The signatures; those whose rows see each other run alone."""
        return {name: self._by_probe(loaded, signature, sizes, budget) for name, signature in signatures.items()}

    def _by_graph(self, signature: ModelSignature) -> ModelSignature:
        wanted = self._setting(signature.name)
        reason, unproven = "", "it was not probed"
        if wanted == "assume":
            signature, unproven = replace(signature, writes=()), "row_independence says assume"
        elif signature.writes:
            reason = f"each call writes state ({', '.join(signature.writes)})"
        elif wanted == "deny":
            reason = "row_independence says deny"
        if signature.batchable:
            self.found[signature.name] = FoundRows(reason, "" if reason else unproven)
        return replace(signature, alone=dict.fromkeys(signature.outputs, reason)) if reason else signature

    def _by_probe(
        self, loaded: LoadedModel, signature: ModelSignature, sizes: BatchSizes, budget: TimeBudget
    ) -> ModelSignature:
        probed = self._setting(signature.name) == "probe" and sizes.largest > 1
        if not probed or not signature.batchable or signature.alone or signature.writes:
            return signature
        dependent, unproven, in_time = probe_rows(loaded, signature, sizes, budget)
        reasons = {output: f"output {output!r}: {reason}" for output, reason in dependent.items()}
        signature = replace(signature, alone=reasons) if reasons else signature
        self.found[signature.name] = FoundRows(signature.why_alone(), "" if reasons else unproven, in_time)
        return signature

    def _setting(self, signature: str) -> str:
        return setting_of(self._wanted, self._model, signature)


def setting_of(wanted: Mapping[str, str], model: str, signature: str) -> str:
    """What row_independence says of a signature."""
    return wanted.get(f"{model}/{signature}") or wanted.get(model, "probe")
