"""Facts of the versions in memory, for the health page: devices, rows, mixed shapes, variants, background work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from app.core.events import (
    ModelImproving,
    ModelPlaced,
    ModelStateChanged,
    RowsProbed,
    RowsTried,
    ShadowChecked,
    ShapesProbed,
    Subscriptions,
    VariantsChosen,
)
from app.core.versions import VersionState

_PLAIN = {"variant": "plain", "speed_up": 1.0}
_NOT_PADDED = "only equal shapes share a batch: a check of answers found that padding changes the answers"
_ALONE = "each request runs alone: a check of answers found that a row's answer depends on the other rows"


class ModelFacts:
    """A subscriber that records facts of a version from its load to its end.

    Findings of background work may come after the end of a version; they are not recorded, as they would stay.

    A way of execution that a shadow check stopped is shown as stopped, also if the event of its choice comes later.

    devices: by 'model/version', the devices that have a replica.
    notes: by 'model/version', how it was loaded, if unusual.
    rows: by 'model/version' and signature, whether rows of several requests share calls, or why not.
    row_proofs: by 'model/version' and signature, the proof that they do; empty if each request runs alone.
    shadow_checks: by 'model/version' and signature, the checks by their result.
    variants: by 'model/version' and signature, the variant of each batch size.
    improving: by 'model/version', the current step of background work; empty after the last one.
    row_trials, row_trial_s: by 'model/version' and signature, trials of its rows by their result, and their seconds.
    """

    def __init__(self) -> None:
        self._living: set[tuple[str, int]] = set()
        self.devices: dict[str, list[str]] = {}
        self.notes: dict[str, str] = {}
        self.variants: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.rows: dict[str, dict[str, str]] = {}
        self.row_proofs: dict[str, dict[str, str]] = {}
        self.improving: dict[str, str] = {}
        self.shadow_checks: dict[str, dict[str, Counter[str]]] = {}
        self.row_trials: dict[str, dict[str, Counter[str]]] = {}
        self.row_trial_s: dict[str, dict[str, float]] = {}
        self._shapes: dict[str, dict[str, ShapesProbed]] = {}
        findings: Subscriptions = {
            ModelPlaced: self._model_placed,
            ModelImproving: self._model_improving,
            RowsProbed: self._rows_probed,
            RowsTried: self._rows_tried,
            ShadowChecked: self._shadow_checked,
            ShapesProbed: self._shapes_probed,
            VariantsChosen: self._variants_chosen,
        }
        self.subscriptions: Subscriptions = {
            ModelStateChanged: self._model_state_changed,
            **{kind: partial(self._found, record) for kind, record in findings.items()},
        }

    def mixed_shapes(self) -> dict[str, dict[str, str]]:
        """The way in which requests of different shapes share calls, or why not, by 'model/version' and signature."""
        return {
            version: {name: found.explanation for name, found in signatures.items()}
            for version, signatures in self._shapes.items()
        }

    def shapes_probed(self, model: str, version: int, signature: str) -> ShapesProbed | None:
        """The result of the probe of a signature; None if there was none."""
        return self._shapes.get(f"{model}/{version}", {}).get(signature)

    def _found(self, record: Callable[[Any], None], event: Any) -> None:
        """Record a finding, whose event begins with model and version, unless the version has ended."""
        if event[:2] in self._living:
            record(event)

    def _model_placed(self, event: ModelPlaced) -> None:
        self.devices[f"{event.model}/{event.version}"] = list(event.devices)
        if event.note:
            self.notes[f"{event.model}/{event.version}"] = event.note

    def _rows_probed(self, event: RowsProbed) -> None:
        stopped = self._stopped(event, "sharing")
        self._note_rows(event, "" if stopped else event.proof, _ALONE if stopped else event.explanation)

    def _note_rows(self, event: RowsProbed | ShadowChecked, proof: str, text: str) -> None:
        version = f"{event.model}/{event.version}"
        self.rows.setdefault(version, {})[event.signature] = text
        self.row_proofs.setdefault(version, {})[event.signature] = proof

    def _model_improving(self, event: ModelImproving) -> None:
        self.improving[f"{event.model}/{event.version}"] = event.step

    def _rows_tried(self, event: RowsTried) -> None:
        version, signature = f"{event.model}/{event.version}", event.signature
        self.row_trials.setdefault(version, {}).setdefault(signature, Counter())[event.result] += 1
        seconds = self.row_trial_s.setdefault(version, {})
        seconds[signature] = seconds.get(signature, 0.0) + event.seconds

    def _shadow_checked(self, event: ShadowChecked) -> None:
        version = f"{event.model}/{event.version}"
        self.shadow_checks.setdefault(version, {}).setdefault(event.signature, Counter())[event.result] += 1
        if event.result == "variant":
            for each in self.variants.get(version, {}).get(event.signature, ()):
                each.update(_PLAIN)
        elif event.result == "padding":
            found = ShapesProbed(event.model, event.version, event.signature, False, _NOT_PADDED)
            self._shapes.setdefault(version, {})[event.signature] = found
        elif event.result == "sharing":
            self._note_rows(event, "", _ALONE)

    def _stopped(self, event: RowsProbed | ShapesProbed | VariantsChosen, what: str) -> bool:
        """Whether a shadow check stopped this before: requests may use a new way before its event comes."""
        checks = self.shadow_checks.get(f"{event.model}/{event.version}", {})
        return checks.get(event.signature, Counter())[what] > 0

    def _shapes_probed(self, event: ShapesProbed) -> None:
        if self._stopped(event, "padding"):
            event = event._replace(padded=False, explanation=_NOT_PADDED)
        self._shapes.setdefault(f"{event.model}/{event.version}", {})[event.signature] = event

    def _variants_chosen(self, event: VariantsChosen) -> None:
        self.variants.setdefault(f"{event.model}/{event.version}", {})[event.signature] = [
            {"batch_size": size, "variant": variant, "speed_up": round(speed_up, 2)}
            | (_PLAIN if self._stopped(event, "variant") else {})
            for size, (variant, speed_up) in event.variants.items()
        ]

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state != VersionState.END:
            self._living.add(event[:2])
            return
        self._living.discard(event[:2])
        kept: Sequence[dict[str, Any]] = (self.devices, self.notes, self.variants, self.rows, self.row_proofs)
        trials: Sequence[dict[str, Any]] = (self.row_trials, self.row_trial_s)
        for facts in (*kept, *trials, self.improving, self.shadow_checks, self._shapes):
            facts.pop(f"{event.model}/{event.version}", None)
