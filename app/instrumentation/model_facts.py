"""Facts of the versions in memory, for the health page: devices, rows, mixed shapes, variants, background work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class VersionFacts:
    """The facts of one version, most of them by signature.

    A way of execution that a shadow check stopped is shown as stopped, also if the event of its choice comes later.

    devices: those that have a replica.
    note: how it was loaded, if unusual.
    improving: the current step of background work; empty after the last one, None before the first.
    rows: whether rows of several requests share calls, or why not.
    row_proofs: the proof that they do; empty if each request runs alone.
    variants: the variant of each batch size.
    shapes: the result of the probe with mixed shapes.
    shadow_checks: the checks by their result.
    row_trials, row_trial_s: the trials of its rows by their result, and their seconds.
    """

    devices: Sequence[str] = ()
    note: str = ""
    improving: str | None = None
    rows: dict[str, str] = field(default_factory=dict)
    row_proofs: dict[str, str] = field(default_factory=dict)
    variants: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    shapes: dict[str, ShapesProbed] = field(default_factory=dict)
    shadow_checks: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    row_trials: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    row_trial_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def mixed_shapes(self) -> dict[str, str]:
        """The way in which requests of different shapes share calls, or why not."""
        return {signature: found.explanation for signature, found in self.shapes.items()}

    def model_placed(self, event: ModelPlaced) -> None:
        self.devices, self.note = list(event.devices), event.note or self.note

    def rows_probed(self, event: RowsProbed) -> None:
        stopped = self._stopped(event, "sharing")
        self._note_rows(event, "" if stopped else event.proof, _ALONE if stopped else event.explanation)

    def _note_rows(self, event: RowsProbed | ShadowChecked, proof: str, text: str) -> None:
        self.rows[event.signature], self.row_proofs[event.signature] = text, proof

    def model_improving(self, event: ModelImproving) -> None:
        self.improving = event.step

    def rows_tried(self, event: RowsTried) -> None:
        self.row_trials[event.signature][event.result] += 1
        self.row_trial_s[event.signature] += event.seconds

    def shadow_checked(self, event: ShadowChecked) -> None:
        self.shadow_checks[event.signature][event.result] += 1
        if event.result == "variant":
            for each in self.variants.get(event.signature, ()):
                each.update(_PLAIN)
        elif event.result == "padding":
            found = ShapesProbed(event.model, event.version, event.signature, False, _NOT_PADDED)
            self.shapes[event.signature] = found
        elif event.result == "sharing":
            self._note_rows(event, "", _ALONE)

    def _stopped(self, event: RowsProbed | ShapesProbed | VariantsChosen, what: str) -> bool:
        """Whether a shadow check stopped this before: requests may use a new way before its event comes."""
        return self.shadow_checks.get(event.signature, Counter())[what] > 0

    def shapes_probed(self, event: ShapesProbed) -> None:
        if self._stopped(event, "padding"):
            event = event._replace(padded=False, explanation=_NOT_PADDED)
        self.shapes[event.signature] = event

    def variants_chosen(self, event: VariantsChosen) -> None:
        self.variants[event.signature] = [
            {"batch_size": size, "variant": variant, "speed_up": round(speed_up, 2)}
            | (_PLAIN if self._stopped(event, "variant") else {})
            for size, (variant, speed_up) in event.variants.items()
        ]


#: The events of findings, which begin with the name and number of a version.
_FINDINGS: Mapping[type[Any], Callable[[VersionFacts, Any], None]] = {
    ModelPlaced: VersionFacts.model_placed,
    ModelImproving: VersionFacts.model_improving,
    RowsProbed: VersionFacts.rows_probed,
    RowsTried: VersionFacts.rows_tried,
    ShadowChecked: VersionFacts.shadow_checked,
    ShapesProbed: VersionFacts.shapes_probed,
    VariantsChosen: VersionFacts.variants_chosen,
}


class ModelFacts:
    """A subscriber that records facts of a version from its load to its end.

    Findings of background work may come after the end of a version; they are not recorded, as they would stay.

    versions: the facts by model and version.
    """

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], VersionFacts] = {}
        self.subscriptions: Subscriptions = {
            ModelStateChanged: self._model_state_changed,
            **{kind: partial(self._found, record) for kind, record in _FINDINGS.items()},
        }

    def of(self, model: str, version: int) -> VersionFacts:
        """The facts of a version; none for an unknown one."""
        return self.versions.get((model, version)) or VersionFacts()

    def shown(self, name: str) -> dict[str, Any]:
        """The facts of this name by 'model/version', where there are any."""
        found = {f"{model}/{number}": getattr(facts, name) for (model, number), facts in self.versions.items()}
        return {version: each for version, each in found.items() if each}

    def _found(self, record: Callable[[VersionFacts, Any], None], event: Any) -> None:
        if facts := self.versions.get(event[:2]):
            record(facts, event)

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state == VersionState.END:
            self.versions.pop(event[:2], None)
        else:
            self.versions.setdefault(event[:2], VersionFacts())
