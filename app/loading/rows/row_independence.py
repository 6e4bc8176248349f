"""The proofs that rows of a signature do not see each other; requests for proven outputs share calls.

Rules (test_row_independence.py)
1. An output is shared only while it is proven. Until then a request that wants it is one call, exactly once, of its
   rows alone and without padding. A doubt costs speed, never a right answer.
2. There are three proofs, tried in this order: by graph (for all values and numbers of rows), by probe (calls at load),
   by traffic (rows of accepted requests, computed alone and together before any answer comes from a shared call).
   The last two hold up to the number of rows that was tried.
3. A disproof by calls (traffic, a shadow check) stays, whatever else proves the output, in all versions of the graph.
4. A signature that writes state is called for requests only: not to warm it up, measure or probe it.
5. The setting row_independence replaces all proofs by assume or deny; the log warns of assume at each load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from threading import RLock
from typing import NamedTuple

from app.core.batch_sizes import BatchSizes
from app.core.batching_explanation import NOT_PROVEN
from app.core.events import RowsProbed
from app.core.inference import ModelSignature
from app.core.time_budget import TimeBudget
from app.core.values.value_kinds import Reach, inputs_beyond
from app.loading.budgeted_model import BudgetedModel
from app.loading.rows.row_probe import probe_rows
from app.loading.rows.row_proofs import Disproof, KeptProof, RowProofs

logger = logging.getLogger(__name__)

Signatures = Mapping[str, ModelSignature]

#: The names of the proofs, and of the setting in place of one.
GRAPH, PROBE, TRAFFIC, SETTING = "graph", "probe", "traffic", "row_independence"

#: Why requests with NaN or infinity do not share calls of a graph with loops.
ENDLESS = "its loops may go on for such values until other rows overflow, or without end"


class FoundRows(NamedTuple):
    """The verdict on requests for all outputs of a batchable signature.

    proof: the proof by which they share calls; empty if each request runs alone.
    alone: why each request runs alone; empty if they share calls.
    rows: the most rows of a call for which it is proven; 0 for any number.
    finite_only: why requests that hold NaN or infinity run alone all the same; empty if they do not.
    """

    proof: str = ""
    alone: str = ""
    rows: int = 0
    finite_only: str = ""

    def __str__(self) -> str:
        if self.alone:
            return f"each request runs alone: {self.alone}"
        if self.proof == SETTING:
            return "requests share calls, not proven: row_independence says assume"
        up_to = f", up to {self.rows} rows" if self.rows else ""
        finite_only = f"; those with NaN or infinity run alone: {self.finite_only}" if self.finite_only else ""
        return f"requests share calls, proven by {self.proof}{up_to}{finite_only}"


class _Known(NamedTuple):
    """The verdict on one output.

    proof: its proof; empty if there is none.
    rows: the most rows of a call for which it is proven; 0 for any number.
    why: why a request that wants it runs alone; empty if it is proven.
    final: whether probes and traffic cannot change it: it mixes rows, or a setting or a state forbids to share.
    """

    proof: str = ""
    rows: int = 0
    why: str = ""
    final: bool = False

    def proven_rows(self, most: int) -> int:
        """The most rows of a call for which it is proven, up to `most`."""
        return min(self.rows or most, most) if self.proof else 1

    def holds_for(self, rows: int) -> bool:
        """Whether calls of up to this many rows need no further proof."""
        return self.final or self.proven_rows(rows) == rows


class RowIndependence:
    """The verdicts on the signatures of one version. May be called from any thread.

    Args:
        wanted: the setting row_independence: 'probe', 'assume' or 'deny' by 'model/signature', 'model' or '*'.
        proofs: proofs and disproofs by earlier calls, in any version with the same graph.

    Attributes:
        changed: called when requests must run in another way than before. It may be called on any thread.
    """

    def __init__(self, model: str, wanted: Mapping[str, str], proofs: RowProofs | None = None) -> None:
        self._model = model
        self._wanted = wanted
        self._proofs = proofs or RowProofs(None)
        self._lock = RLock()
        self._loaded: dict[str, ModelSignature] = {}
        self._known: dict[str, dict[str, _Known]] = {}
        self._finite_only: dict[str, str] = {}
        self._limits: dict[str, int] = {}
        self._told: dict[str, FoundRows] = {}
        self.changed: Callable[[], object] = _nothing

    # --- verdicts ---

    @property
    def found(self) -> dict[str, FoundRows]:
        """The verdict on each batchable signature."""
        with self._lock:
            return {name: self._found(name) for name in self._known}

    @property
    def proven_by_calls(self) -> list[str]:
        """The signatures with an output that only calls proved: their first answers are compared."""
        with self._lock:
            outputs = {name: [each.proof for each in known.values()] for name, known in self._known.items()}
        return [name for name, proofs in outputs.items() if {PROBE, TRAFFIC}.intersection(proofs)]

    def unproven(self, sizes: BatchSizes) -> dict[str, int]:
        """The signatures that traffic may prove further, and the rows of a call for which they are proven; 1 for none.

        None of their outputs is disproved, and they do not draw random numbers.
        """
        with self._lock:
            return {
                name: min(each.proven_rows(self._most(name, sizes)) for each in outputs.values())
                for name, outputs in self._known.items()
                if not (self._loaded[name].draws or any(each.final for each in outputs.values()))
                and not self._holds_for(name, sizes)
            }

    def is_settled(self, sizes: BatchSizes) -> bool:
        """Whether a probe could find nothing more for calls of these sizes."""
        with self._lock:
            return all(self._holds_for(name, sizes) for name in self._known)

    def news(self, version: int) -> Iterator[RowsProbed]:
        """The verdicts that changed since the last call."""
        for signature, found in self.found.items():
            if found != self._told.get(signature):
                self._told[signature] = found
                yield RowsProbed(self._model, version, signature, bool(found.alone), found.proof, str(found))

    def settled(self, signatures: Signatures) -> dict[str, ModelSignature]:
        """The signatures by which requests are placed, with the verdicts of now."""
        with self._lock:
            return {name: self._settle(signature) for name, signature in signatures.items()}

    # --- the proofs ---

    def by_graph(self, signatures: Signatures) -> dict[str, ModelSignature]:
        """The signatures with the verdicts of settings, graph and earlier calls; before the first call."""
        writing = [name for name, signature in signatures.items() if signature.writes]
        with self._lock:
            self._loaded.update(signatures)  # before any is watched: `disproved` walks over them without the lock
            for name, signature in signatures.items():
                if signature.shares_calls:
                    self._known[name] = self._by_graph(signature)
                    if writing and self._setting(name) != "assume":
                        known = self._known[name]
                        known |= {output: _of_state(each, writing[0]) for output, each in known.items()}
            return self.settled(signatures)

    def by_probe(
        self, model: BudgetedModel, signatures: Signatures, sizes: BatchSizes, budget: TimeBudget
    ) -> dict[str, ModelSignature]:
        """Calls the model at these sizes where the graph proves nothing. The budget is that of all calls."""
        with model.within(budget):
            for name, signature in signatures.items():
                if self._is_probed(signature, sizes):
                    self._by_probe(model, self._loaded[name], sizes)
        return self.settled(signatures)

    @property
    def limits(self) -> dict[str, int]:
        """A copy of the known limits: by signature, the most rows of a call that the model takes."""
        with self._lock:
            return dict(self._limits)

    def limit(self, most_rows: Mapping[str, int]) -> None:
        """Notes by signature the most rows of a call that the model takes; it rejects more, whatever their values."""
        with self._lock:
            self._limits |= most_rows

    def taken(self, sizes: BatchSizes) -> BatchSizes:
        """The sizes up to the most rows of a call that one of the signatures takes."""
        with self._lock:
            called = [each for each in self._loaded.values() if each.shares_calls and not each.writes]
            limits = [self._limits.get(each.name, 0) for each in called]
        return sizes.up_to(max(limits)) if limits and all(limits) else sizes

    def by_traffic(self, signature: str, rows: int) -> None:
        """Notes that requests were computed alone and together, and agreed in calls of up to `rows` rows."""
        with self._lock:
            for output, known in self._known.get(signature, {}).items():
                if not known.holds_for(rows):
                    self._known[signature][output] = _Known(TRAFFIC, rows)
        self._keep(signature)
        self.changed()

    def stopped(self, signature: str, what: str, reason: str) -> None:
        """Notes that a shadow check, or requests that were tried together, found that `what` changes answers.

        After 'sharing', no version with this graph shares calls any more.
        """
        if what != "sharing":
            return
        known = self._known.get(signature, {})
        if any(each.proof == GRAPH for each in known.values()):
            logger.error(
                "Model %s, signature %r: rows see each other although the graph was read otherwise. Please report this"
                " model: the tables of operations are wrong",
                self._model, signature,
            )  # fmt: skip
        self._withdrawn(signature, reason)
        if signature in self._loaded:
            self._proofs.disprove(self._loaded[signature].fingerprint, reason)

    def close(self) -> None:
        """The version ends: `changed` is not called any more."""
        self.changed = _nothing

    # --- steps of the proofs ---

    def _by_graph(self, signature: ModelSignature) -> dict[str, _Known]:
        wanted, outputs = self._setting(signature.name), tuple(signature.outputs)
        odd = signature.loops and wanted != "assume" and inputs_beyond(signature, Reach.FINITE)
        self._finite_only[signature.name] = ENDLESS if odd else ""
        if wanted == "assume":
            logger.warning(
                "Model %s, signature %r: requests share calls although nothing proves that their rows do not see each "
                "other: row_independence says assume", self._model, signature.name,
            )  # fmt: skip
            return dict.fromkeys(outputs, _Known(SETTING, final=True))
        # 1. State and settings forbid to share.
        if signature.writes:
            return dict.fromkeys(outputs, _mixes(f"each call writes state ({', '.join(signature.writes)})"))
        if wanted == "deny":
            return dict.fromkeys(outputs, _mixes("row_independence says deny"))
        # 2. Earlier calls, in this or another version of the graph, and the graph itself.
        self._proofs.watch(self)
        kept = self._proofs.known(signature.fingerprint, signature.weights)
        if isinstance(kept, Disproof):
            return dict.fromkeys(outputs, _mixes(kept.reason))
        if isinstance(kept, KeptProof) and kept.finite_only:
            self._finite_only[signature.name] = kept.finite_only
        return {output: _of_output(signature, output, kept) for output in outputs}

    def _is_probed(self, signature: ModelSignature, sizes: BatchSizes) -> bool:
        return sizes.largest > 1 and signature.name in self._known and not self._holds_for(signature.name, sizes)

    def _holds_for(self, signature: str, sizes: BatchSizes) -> bool:
        """Whether its calls of these sizes, as far as the model takes them, need no further proof."""
        most = self._most(signature, sizes)
        return all(each.holds_for(most) for each in self._known[signature].values())

    def _most(self, signature: str, sizes: BatchSizes) -> int:
        return min(sizes.largest, self._limits.get(signature) or sizes.largest)

    def _by_probe(self, model: BudgetedModel, signature: ModelSignature, sizes: BatchSizes) -> None:
        name = signature.name
        sizes = sizes.up_to(self._most(name, sizes))
        since = min(known.proven_rows(sizes.largest) for known in self._known[name].values() if not known.final)
        probed = probe_rows(model, self._settle(signature), sizes, since)
        # A disproof is final, a proof may extend an earlier one, and a missing proof keeps an earlier one.
        with self._lock:
            outputs = self._known[name]
            for output, known in outputs.items():
                if known.holds_for(sizes.largest):
                    continue
                if output in probed.dependent:
                    reasons = filter(None, (probed.dependent[output], _open_in_graph(signature, output)))
                    outputs[output] = _mixes(f"output {output!r}: {'; '.join(reasons)}")
                elif output in probed.proven and (not known.proof or probed.rows > known.rows):
                    outputs[output] = _Known(PROBE, probed.rows)
                elif not known.proof:
                    outputs[output] = _Known(why=_not_yet(probed.unproven, _open_in_graph(signature, output)))
            self._finite_only[name] = self._finite_only[name] or probed.finite_only
            if probed.most_rows:
                self._limits[name] = probed.most_rows
        self._keep(name)

    def _settle(self, signature: ModelSignature) -> ModelSignature:
        outputs = self._known.get(signature.name)
        if outputs is None:
            return signature
        alone = {output: known.why for output, known in outputs.items() if known.why}
        limits = [known.rows for known in outputs.values() if known.proof and known.rows]
        limits += [limit for limit in (self._limits.get(signature.name),) if limit]
        writes = () if self._setting(signature.name) == "assume" else signature.writes
        finite_only = self._finite_only[signature.name]
        return replace(signature, alone=alone, writes=writes, most_rows=min(limits, default=0), finite_only=finite_only)

    def _found(self, name: str) -> FoundRows:
        signature = self._settle(self._loaded[name])
        if why := signature.why_alone():
            return FoundRows(alone=why)
        proofs = {known.proof for known in self._known[name].values()}
        proof = next((each for each in (TRAFFIC, PROBE, SETTING) if each in proofs), GRAPH)
        return FoundRows(proof, rows=signature.most_rows, finite_only=signature.finite_only)

    # --- proofs for other versions ---

    def _keep(self, signature: str) -> None:
        with self._lock:
            outputs = {
                output: (known.proof, known.rows)
                for output, known in self._known[signature].items()
                if known.proof in {PROBE, TRAFFIC}
            }
            kept = KeptProof(outputs, self._finite_only[signature])
        if outputs:
            loaded = self._loaded[signature]
            self._proofs.keep(loaded.fingerprint, loaded.weights, kept)

    def disproved(self, fingerprint: str, reason: str) -> None:
        """Another version with this graph, or this one, was found to mix rows."""
        for name, signature in list(self._loaded.items()):
            if signature.fingerprint == fingerprint:
                self._withdrawn(name, reason)

    def _withdrawn(self, signature: str, reason: str) -> None:
        """Withdraw the proofs of a signature, since this version, or another one with the same graph, mixes rows."""
        with self._lock:
            outputs = self._known.get(signature, {})
            if self._setting(signature) == "assume" or all(each.final for each in outputs.values()):
                return
            outputs |= dict.fromkeys(outputs, _mixes(reason))
        self.changed()

    def _setting(self, signature: str) -> str:
        return setting_of(self._wanted, self._model, signature)


def setting_of(wanted: Mapping[str, str], model: str, signature: str) -> str:
    """The value of row_independence for a signature: of the signature, of its model, or of all."""
    return wanted.get(f"{model}/{signature}") or wanted.get(model) or wanted.get("*", "probe")


def _of_state(known: _Known, writing: str) -> _Known:
    """The verdict on an output beside a signature that writes. Only a proof by graph holds for all variables."""
    if known.final or known.proof == GRAPH:
        return known
    return _mixes(
        f"it is not proven by its graph, and calls prove nothing for later: signature {writing!r} writes state"
    )


def _mixes(why: str) -> _Known:
    return _Known(why=why, final=True)


def _of_output(signature: ModelSignature, output: str, kept: KeptProof | Disproof | None) -> _Known:
    """The verdict of the graph on an output; where it has none, that of earlier calls."""
    read = signature.graph_rows
    of_graph = None if read is None else read.outputs.get(output)
    if of_graph is not None and of_graph.proven:
        return _Known(GRAPH)
    if of_graph is not None and of_graph.verdict != "unknown":
        return _mixes(f"output {output!r}: {of_graph.reason}")
    if isinstance(kept, KeptProof) and output in kept.outputs:
        return _Known(*kept.outputs[output])
    return _Known(why=_not_yet(_open_in_graph(signature, output)))


def _open_in_graph(signature: ModelSignature, output: str) -> str:
    """The reason why the graph does not prove an output; empty if no graph was read."""
    read = signature.graph_rows.outputs.get(output) if signature.graph_rows is not None else None
    return f"by its graph: {read.reason}" if read is not None and read.reason else ""


def _not_yet(*reasons: str) -> str:
    """The reason why requests run alone for now, with the reasons of the proofs that were tried."""
    text = "; ".join(filter(None, reasons))
    return f"{NOT_PROVEN}: {text}" if text else NOT_PROVEN


def _nothing() -> None:
    """The listener of a version that is not served."""
