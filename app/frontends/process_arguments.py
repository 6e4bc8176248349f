"""What supervised processes have in common: their arguments, and an end with their parent's."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.config.settings import Settings

#: Exit code of a process that would fail again at once.
COULD_NOT_START = 3


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a process gets on its command line, as one JSON document.

    sockets: file descriptors: for a frontend those whose ports it shares, for the engine what frontends reach it by.
    engine: where the engine is found, a path.
    flags: those of ferry-model-server, for its engine.
    """

    settings: Settings
    sockets: Sequence[int]
    engine: str = ""
    flags: Mapping[str, Any] | None = None

    def dump(self) -> str:
        document = {
            "settings": self.settings.model_dump(mode="json"),
            "sockets": self.sockets,
            "engine": self.engine,
            "flags": self.flags,
        }
        return orjson.dumps(document).decode()

    @classmethod
    def parse(cls, text: str) -> Arguments:
        document = orjson.loads(text)
        return cls(**{**document, "settings": Settings(**document["settings"])})


def when_parent_ends(act: Callable[[], None]) -> None:
    """Standard input is a pipe that the parent holds open for as long as it lives, and writes nothing to."""
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()

    def ended() -> None:
        if not os.read(file, 4096):
            loop.remove_reader(file)
            act()

    loop.add_reader(file, ended)
