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
        logger.error(
            "Model %s version %d: %s: %s", event.model, event.version, event.state, event.error,
            extra=_fields(event),
        )  # fmt: skip
    else:
        logger.info(
            "Model %s version %d: %s", event.model, event.version, event.state,
            extra=_fields(event),
        )  # fmt: skip


def _model_placed(event: ModelPlaced) -> None:
    if event.note:
        logger.info("Model %s version %d: %s", event.model, event.version, event.note, extra=_fields(event))


def _variants_chosen(event: VariantsChosen) -> None:
    forms = "; ".join(_forms(event.variants))
    logger.info(
        "Model %s version %d executes signature %r, by batch size: %s",
        event.model, event.version, event.signature, forms,
        extra=_fields(event),
    )  # fmt: skip


def _rows_probed(event: RowsProbed) -> None:
    logger.log(
        logging.WARNING if event.alone and not event.whole else logging.INFO,
        "Model %s version %d, signature %r: %s",
        event.model, event.version, event.signature, event.explanation,
        extra=_fields(event),
    )  # fmt: skip


def _shadow_checked(event: ShadowChecked) -> None:
    if event.result in _AFTERWARDS:
        logger.warning(
            "Model %s version %d, signature %r: an answer differs from the model's own because of its %s, which is "
            "not used any more: %s",
            event.model, event.version, event.signature, event.result, _AFTERWARDS[event.result],
            extra=_fields(event),
        )  # fmt: skip


def _shapes_probed(event: ShapesProbed) -> None:
    logger.info(
        "Model %s version %d, signature %r: %s",
        event.model, event.version, event.signature, event.explanation,
        extra=_fields(event),
    )  # fmt: skip


#: Requests and batches are counted, not logged.
SUBSCRIPTIONS: Subscriptions = {
    ModelStateChanged: _model_state_changed,
    ModelPlaced: _model_placed,
    VariantsChosen: _variants_chosen,
    RowsProbed: _rows_probed,
    ShadowChecked: _shadow_checked,
    ShapesProbed: _shapes_probed,
}


def _fields(
    event: ModelStateChanged | ModelPlaced | VariantsChosen | RowsProbed | ShadowChecked | ShapesProbed,
) -> dict[str, object]:
    """The fields of the line of an event, beside its text."""
    return {"model": event.model, "version": event.version}


def _forms(variants: Mapping[int, tuple[str, float]]) -> Iterator[str]:
    """'1 plain', '2-64 frozen (1.10-1.54x)': neighbouring batch sizes with the same variant in one text."""
    for variant, group in groupby(variants.items(), key=lambda item: item[1][0]):
        sizes, chosen = zip(*group, strict=True)
        gains = list(dict.fromkeys(f"{speed_up:.2f}" for _, speed_up in sorted(chosen)))
        gain = f" ({_range(gains)}x)" if gains != ["1.00"] else ""
        yield f"{_range([str(size) for size in sizes])} {variant}{gain}"


def _range(ends: list[str]) -> str:
    return ends[0] if len(ends) == 1 else f"{ends[0]}-{ends[-1]}"
