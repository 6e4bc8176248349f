"""Follows a list of models that somebody else writes, such as a file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.core.errors import ServingError
from app.repository.model_config import ModelConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchedModels:
    """The models to start with, and how to read the list again.

    read: blocking; raises ServingError or OSError where there is no list to be had.
    poll_interval_s: how often it is read again; 0 never.
    labels_anywhere: see ModelRepository.
    """

    configs: Sequence[ModelConfig]
    read: Callable[[], Sequence[ModelConfig]] | None = None
    poll_interval_s: float = 0.0
    labels_anywhere: bool = False


async def watch_list(models: WatchedModels, reload: Callable[[Sequence[ModelConfig]], Awaitable[None]]) -> None:
    """Puts every change of the list into effect, until cancelled. What cannot be is said once and tried again."""
    current, said = models.configs, ""
    while models.read is not None and models.poll_interval_s > 0:
        await asyncio.sleep(models.poll_interval_s)
        try:
            configs = await asyncio.to_thread(models.read)
            if configs != current:
                await reload(configs)
                logger.info("The models are now: %s", ", ".join(config.name for config in configs) or "none")
            current, said = configs, ""
        except (ServingError, OSError) as error:
            if str(error) != said:
                logger.error("The list of models is not in effect: %s", error)
            said = str(error)
        except Exception:  # the watch must outlive any bug
            logger.exception("Following the list of models failed; trying again in %g s", models.poll_interval_s)
