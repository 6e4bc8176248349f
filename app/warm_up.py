"""Running a model once at every size before its first caller, so that no caller pays for first calls."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from app.errors import InvalidRequest
from app.examples import example_inputs
from app.runtime import LoadedModel, ProgressReport, TunableModel, VariantChoice

log = logging.getLogger(__name__)


def warm_up(model: LoadedModel, sizes: Sequence[int], report: ProgressReport) -> None:
    """Runs every signature at every size, the ones that cannot be batched once.

    A signature that refuses the example values (an image decoder, given no image) stays cold, with a warning.

    Raises:
        InferenceFailed: the model or the device failed; OutOfMemory, if a size does not fit the device.
    """
    calls = [(signature, sizes if signature.batchable else (1,)) for signature in model.signatures.values()]
    total = sum(len(rows) for _, rows in calls)
    done = 0
    for signature, all_rows in calls:
        for count, rows in enumerate(all_rows, start=1):
            what = f"signature {signature.name!r} with {rows} {'row' if rows == 1 else 'rows'}"
            report(done + count, total, what)
            try:
                model.run(signature.name, example_inputs(signature, rows), ())
            except InvalidRequest as refusal:
                log.warning("Signature %r stays cold, it refuses the example values: %s", signature.name, refusal)
                break
        done += len(all_rows)


def tune(model: LoadedModel, sizes: Sequence[int], report: ProgressReport) -> Sequence[VariantChoice]:
    """Lets a model that can be executed in several ways find the fastest; says nothing of others."""
    return model.tune(sizes, report) if isinstance(model, TunableModel) else ()
