"""Facts of the versions in memory, for the health page: devices, rows, mixed shapes, variants, background work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
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


#: Events of background work, which may come after the end of a version. They begin with its name and number.
_FINDINGS = (ModelImproving, ModelPlaced, RowsProbed, RowsTried, ShadowChecked, ShapesProbed, VariantsChosen)


def without_late_findings(subscriptions: Subscriptions) -> Subscriptions:
    """The subscriptions without events of background work after the end of a version, whose facts would stay."""
    living: set[tuple[str, int]] = set()
    handle_state = subscriptions[ModelStateChanged]

    def state_changed(event: ModelStateChanged) -> None:
        (living.discard if event.state == VersionState.END else living.add)((event.model, event.version))
        handle_state(event)

    def guarded(handle: Callable[[Any], None]) -> Callable[[Any], None]:
        def found(event: Any) -> None:
            if event[:2] in living:
                handle(event)

        return found

    guards = {kind: guarded(subscriptions[kind]) for kind in _FINDINGS if kind in subscriptions}
    return {**subscriptions, **guards, ModelStateChanged: state_changed}


class ModelFacts:
    """A subscriber that records facts of a version from its load to its end.

    A way of execution that a shadow check stopped is shown as stopped, also if the event of its choice comes later.

    devices: by 'model/version', the devices that have a replica.
    notes: by 'model/version', how it was loaded, if unusual.
    rows: by 'model/version' and signature, whether rows of several requests share calls, or why not.
    row_proofs: by 'model/version' and signature, the proof that they do; empty if each request runs alone.
    shadow_checks: by 'model/version' and signature, the checks by their result.
    variants: by 'model/version' and signature, the variant of each batch size.
    improving: by 'model/version', the current step of background work.
    """

    def __init__(self) -> None:
        self.devices: dict[str, list[str]] = {}
        self.notes: dict[str, str] = {}
        self.variants: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.rows: dict[str, dict[str, str]] = {}
        self.row_proofs: dict[str, dict[str, str]] = {}
        self.improving: dict[str, str] = {}
        self.shadow_checks: dict[str, dict[str, Counter[str]]] = {}
        self._shapes: dict[str, dict[str, ShapesProbed]] = {}
        self.subscriptions = without_late_findings({
            ModelPlaced: self._model_placed,
            ModelImproving: self._model_improving,
            RowsProbed: self._rows_probed,
            ShadowChecked: self._shadow_checked,
            ShapesProbed: self._shapes_probed,
            VariantsChosen: self._variants_chosen,
            ModelStateChanged: self._model_state_changed,
        })  # fmt: skip

    def mixed_shapes(self) -> dict[str, dict[str, str]]:
        """The way in which requests of different shapes share calls, or why not, by 'model/version' and signature."""
        return {
            version: {name: found.explanation for name, found in signatures.items()}
            for version, signatures in self._shapes.items()
        }

    def shapes_probed(self, model: str, version: int, signature: str) -> ShapesProbed | None:
        """The result of the probe of a signature; None if there was none."""
        return self._shapes.get(f"{model}/{version}", {}).get(signature)

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
        if event.step:
            self.improving[f"{event.model}/{event.version}"] = event.step
        else:
            self.improving.pop(f"{event.model}/{event.version}", None)

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
        if event.state == VersionState.END:
            kept: Sequence[dict[str, Any]] = (self.devices, self.notes, self.variants, self.rows, self.row_proofs)
            for facts in (*kept, self.improving, self.shadow_checks, self._shapes):
                facts.pop(f"{event.model}/{event.version}", None)
