"""The watch of a list of models, such as a file, which is read again and again, and whose changes are applied."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.core.errors import ModelNotFound, ModelNotReady, ServingError
from app.repository.model_config import ModelConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchedModels:
    """The first models, and the way to read the list again.

    read: blocking; raises ServingError or OSError if the list cannot be read.
    poll_interval_s: seconds between reads; 0 never reads it again.
    labels_anywhere: see ModelRepository.
    """

    configs: Sequence[ModelConfig]
    read: Callable[[], Sequence[ModelConfig]] | None = None
    poll_interval_s: float = 0.0
    labels_anywhere: bool = False


async def watch_list(models: WatchedModels, reload: Callable[[Sequence[ModelConfig]], Awaitable[None]]) -> None:
    """Apply every change of the list, until cancelled. After an error the list is read again.

    The same error is logged once, until the list is read and applied, or there is another error.
    """
    current, logged = models.configs, ""
    while models.read is not None and models.poll_interval_s > 0:
        await asyncio.sleep(models.poll_interval_s)
        try:
            configs = await asyncio.to_thread(models.read)
            if configs != current:
                await _apply(configs, reload)
            current, logged = configs, ""
        except Exception as error:  # a bug must not end the watch
            before, logged = logged, f"{type(error).__name__}: {error}"
            if logged != before and isinstance(error, (ServingError, OSError)):
                logger.error("The list of models is not in effect, so the models stay as they are: %s", error)
            elif logged != before:
                logger.exception(
                    "Reading the list of models failed; the models stay as they are; it is read again every %g s",
                    models.poll_interval_s,
                )


async def _apply(configs: Sequence[ModelConfig], reload: Callable[[Sequence[ModelConfig]], Awaitable[None]]) -> None:
    """Apply a list, once: a new model that does not load is logged. Raises what `reload` raises if nothing changed."""
    names = ", ".join(config.name for config in configs) or "none"
    try:
        await reload(configs)
    except (ModelNotFound, ModelNotReady) as error:
        logger.error("The list of models changed; the models are now: %s; not all of them are served: %s", names, error)
    else:
        logger.info("The list of models changed; the models are now: %s", names)
