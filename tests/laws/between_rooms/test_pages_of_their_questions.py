"""A page is that of its question: of all who ask at the same time each gets what it would get alone.

Pages are made once for all who ask the same (app/transports/rendered_pages.py). What a page depends on is its key: one
that lacks something gives somebody the models, the form or the encoding of another one's question.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from app import runtime
from app.protocols.open_inference.documents.list_pages import IN_JSON, IN_PROTOBUF
from app.server.server import Server
from app.transports.rendered_pages import Page
from tests.every_protocol.live import RUNTIME, frontends_of, settings
from tests.support.waiting import HANG_S

MODELS = ("broken", "first", "other")

ENCODINGS, FORMS, PATTERNS = (None, "gzip"), (IN_JSON, IN_PROTOBUF), (None, ("first",), ("oth*", "broken"))
ACCEPTED = ("", "application/openmetrics-text")

#: By its name, each question that may be asked of this page.
Questions = Mapping[str, Callable[[], Awaitable[Page]]]


def questions_of(face: Any) -> Questions:
    """`face`: a Server, or a frontend."""
    statistics, index = face.open_inference.model_statistics, face.open_inference.repository_index
    asked: dict[str, Callable[[], Awaitable[Page]]] = {
        **{f"summary {each}": partial(face.summary, *each) for each in product(ENCODINGS)},
        **{f"metrics {each}": partial(face.metrics, *each) for each in product(ACCEPTED, ENCODINGS)},
        **{f"batching {each}": partial(face.explain_batching, *each) for each in product(MODELS[1:], ENCODINGS)},
        **{
            f"statistics {each}": partial(statistics, *each)
            for each in product(("", "first"), ("", "1"), FORMS, PATTERNS, ENCODINGS)
            if each[0] or not each[1]
        },
        **{f"index {each}": partial(index, *each) for each in product((False, True), FORMS, PATTERNS, ENCODINGS)},
    }
    return asked


def shown(page: Page) -> tuple[object, ...]:
    """What tells the answers to two questions apart: their form, their encoding, and the models in them."""
    body = gzip.decompress(page.body) if page.encoding == "gzip" else page.body
    return page.content_type, page.encoding, [each for each in MODELS if each.encode() in body]


@pytest.mark.parametrize("frontends", [0, 1], ids=["one process", "a frontend"])
def test_who_asks_beside_others_gets_what_it_gets_alone(
    frontends: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runtime._REGISTRY, *RUNTIME)
    monkeypatch.setattr("app.transports.rendered_pages.MOST_PAUSE_S", 0.0)
    for name in MODELS:
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "saved_model.pb").touch()

    async def compare(face: Any) -> None:
        questions = questions_of(face)
        alone = {name: shown(await ask()) for name, ask in questions.items()}
        together = await asyncio.gather(*[ask() for ask in questions.values()])
        assert dict(zip(questions, map(shown, together), strict=True)) == alone
        assert len({str(each) for each in alone.values()}) > len(FORMS) * len(PATTERNS), "they differ"

    async def main() -> None:
        server = Server(settings(tmp_path, frontends=frontends))
        await server.start()
        assert server._starting is not None
        await server._starting
        async with asyncio.timeout(HANG_S):
            if frontends:
                async with frontends_of(server) as (frontend,):
                    await compare(frontend)
            else:
                await compare(server)
        await server.stop()

    asyncio.run(main())
