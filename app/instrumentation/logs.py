"""What an operator reads: one line an event that matters, on standard error."""

from __future__ import annotations

import logging

from app.events import Event, ModelStateChanged, VariantsChosen

logger = logging.getLogger("ferry")


def configure(level: str) -> None:
    """Sends Ferry's and uvicorn's records to standard error in one form."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True)
    logging.getLogger("uvicorn.access").disabled = True
    for noisy in ("asyncio", "h5py", "absl"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def log_event(event: Event) -> None:
    """A listener: the life of models and how they are executed. Requests and batches are counted, not logged."""
    if isinstance(event, ModelStateChanged):
        if event.error:
            logger.error("Model %s version %d: %s: %s", event.model, event.version, event.state, event.error)
        else:
            logger.info("Model %s version %d: %s", event.model, event.version, event.state)
    elif isinstance(event, VariantsChosen):
        forms = ", ".join(f"{size}: {_form(*chosen)}" for size, chosen in event.variants.items())
        logger.info(
            "Model %s version %d executes signature %r by batch size as %s",
            event.model, event.version, event.signature, forms,
        )  # fmt: skip


def _form(variant: str, speed_up: float) -> str:
    return variant if speed_up == 1 else f"{variant} ({speed_up:.2f}x)"
