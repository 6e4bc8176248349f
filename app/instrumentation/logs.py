"""Log lines of events: of changes of a model's state, and of the way it is executed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import groupby

from app.core.events import (
    ModelPlaced,
    ModelStateChanged,
    RowsProbed,
    ShadowChecked,
    ShapesProbed,
    Subscriptions,
    VariantsChosen,
)

logger = logging.getLogger("ferry")

#: The consequence of a shadow check that found a difference, by its result.
_AFTERWARDS = {
    "variant": "all batch sizes run plain",
    "padding": "only equal shapes share a batch",
    "sharing": "each request runs alone",
}


def _model_state_changed(event: ModelStateChanged) -> None:
    if event.error:
        _log(logging.ERROR, event, ": %s: %s", event.state, event.error)
    else:
        _log(logging.INFO, event, ": %s", event.state)


def _model_placed(event: ModelPlaced) -> None:
    if event.note:
        _log(logging.INFO, event, ": %s", event.note)


def _variants_chosen(event: VariantsChosen) -> None:
    forms = "; ".join(_forms(event.variants))
    _log(logging.INFO, event, " executes signature %r, by batch size: %s", event.signature, forms)


def _rows_probed(event: RowsProbed) -> None:
    level = logging.WARNING if event.alone and not event.whole else logging.INFO
    _log(level, event, ", signature %r: %s", event.signature, event.explanation)


def _shadow_checked(event: ShadowChecked) -> None:
    if event.result in _AFTERWARDS:
        text = (
            ", signature %r: an answer differs from the model's own because of its %s, which is not used any more: %s"
        )
        _log(logging.WARNING, event, text, event.signature, event.result, _AFTERWARDS[event.result])


def _shapes_probed(event: ShapesProbed) -> None:
    _log(logging.INFO, event, ", signature %r: %s", event.signature, event.explanation)


#: Requests and batches are counted, not logged.
SUBSCRIPTIONS: Subscriptions = {
    ModelStateChanged: _model_state_changed,
    ModelPlaced: _model_placed,
    VariantsChosen: _variants_chosen,
    RowsProbed: _rows_probed,
    ShadowChecked: _shadow_checked,
    ShapesProbed: _shapes_probed,
}


def _log(
    level: int,
    event: ModelStateChanged | ModelPlaced | VariantsChosen | RowsProbed | ShadowChecked | ShapesProbed,
    text: str,
    *values: object,
) -> None:
    """Log a line of a version. `text`: what follows its name; `values`: of the text."""
    version = {"model": event.model, "version": event.version}
    logger.log(level, f"Model %s version %d{text}", event.model, event.version, *values, extra=version)


def _forms(variants: Mapping[int, tuple[str, float]]) -> Iterator[str]:
    """'1 plain', '2-64 frozen (1.10-1.54x)': neighbouring batch sizes with the same variant in one text."""
    for variant, group in groupby(variants.items(), key=lambda item: item[1][0]):
        sizes, chosen = zip(*group, strict=True)
        gains = list(dict.fromkeys(f"{speed_up:.2f}" for _, speed_up in sorted(chosen)))
        gain = f" ({_range(gains)}x)" if gains != ["1.00"] else ""
        yield f"{_range([str(size) for size in sizes])} {variant}{gain}"


def _range(ends: list[str]) -> str:
    return ends[0] if len(ends) == 1 else f"{ends[0]}-{ends[-1]}"
