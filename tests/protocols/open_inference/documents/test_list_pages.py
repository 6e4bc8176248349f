"""Lists of models are the same in both forms, whatever of them was written before; equal asks share one page."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from app.codecs.protobuf.messages import message_class
from app.core.errors import ModelNotFound
from app.core.events import BatchExecuted, RequestFinished
from app.protocols.open_inference.documents import list_pages
from app.protocols.open_inference.documents.grpc_documents import fill_message
from app.protocols.open_inference.documents.list_pages import (
    IN_JSON,
    IN_PROTOBUF,
    MOST_WRITTEN,
    index_pages,
    statistics_pages,
)
from app.transports.rendered_pages import Page, whole
from tests.instrumentation.pages import document_of
from tests.support.open_inference_world import World, sum_model
from tests.support.protocol_fakes import model, specs

_X = specs(x=("float32", (None, 2)))


def world_of(*names: str) -> World:
    return World(*(model(_X, _X, lambda inputs: inputs, name=name) for name in names))


def names_of(page: Page) -> Sequence[str]:
    return [each["name"] for each in document_of(page)["model_stats"]]


def message_of(name: str, page: Page) -> Any:
    return message_class(f"inference.{name}Response").FromString(page.body)


def test_statistics_are_the_same_in_both_forms_before_and_after_requests() -> None:
    world = world_of("a", "b")

    async def both() -> None:
        rest = document_of(await world.served.model_statistics())
        grpc = message_of("ModelStatistics", await world.served.model_statistics(form=IN_PROTOBUF))
        assert grpc == fill_message("inference.ModelStatisticsResponse", rest)

    for _ in range(3):
        asyncio.run(both())
        world._tell(BatchExecuted("b", 1, "s", 4, 0, "idle", 2.0, (0.5,), 0, 0))
        world._tell(RequestFinished("p", "200", "b", 1, "s", 3.0))
    (told,) = document_of(asyncio.run(world.served.model_statistics("b")))["model_stats"]
    assert told["inference_stats"]["success"]["count"] == 3


def test_the_index_is_the_same_in_both_forms() -> None:
    world = world_of("a", "b")

    async def both(ready: bool) -> Any:
        rest = document_of(await world.served.repository_index(ready))
        grpc = message_of("RepositoryIndex", await world.served.repository_index(ready, IN_PROTOBUF))
        assert grpc == fill_message("inference.RepositoryIndexResponse", {"models": rest})
        return [each["name"] for each in rest]

    assert asyncio.run(both(ready=False)) == ["a", "b", "new"]
    assert asyncio.run(both(ready=True)) == ["a", "b"]


@pytest.mark.parametrize("form", [IN_JSON, IN_PROTOBUF])
def test_a_list_without_entries(form: str) -> None:
    for made, empty in ((statistics_pages(), {"model_stats": []}), (index_pages(), [])):
        page = whole(made.page(form, [], None))
        assert page.body == (b"" if form == IN_PROTOBUF else orjson.dumps(empty))


def test_who_may_see_some_models_sees_these_alone() -> None:
    world = world_of("a", "b", "c1", "c2")
    asked = world.served.model_statistics, world.served.repository_index

    async def seen(models: tuple[str, ...]) -> Sequence[Sequence[str]]:
        return [
            [
                each.name
                for each in message_of("ModelStatistics", await asked[0]("", "", IN_PROTOBUF, models)).model_stats
            ],
            [each["name"] for each in document_of(await asked[1](models=models))],
        ]

    assert asyncio.run(seen(("a", "c*"))) == [["a", "c1", "c2"]] * 2
    assert asyncio.run(seen(())) == [[], []]


def test_equal_asks_share_a_page_and_others_do_not() -> None:
    world = world_of("a", "b")

    async def ask() -> Sequence[Page]:
        served = world.served
        return await asyncio.gather(
            *[served.model_statistics(name, version) for name in ("", "a", "b") for version in ("", "1", "01")],
            *[served.model_statistics(encoding="gzip"), served.model_statistics(models=("a",))],
            *[served.model_statistics() for _ in range(50)],
        )

    every, every_1, _, a, a_1, a_01, b, _, _, zipped, visible, *others = asyncio.run(ask())
    assert all(each is every for each in others)
    assert a_1 is a_01, "a version is a number"
    assert [names_of(each) for each in (every, every_1, a, b, visible)] == [["a", "b"], ["a", "b"], ["a"], ["b"], ["a"]]
    assert zipped is not every


def test_a_name_of_no_model_is_told_at_once_and_is_no_key() -> None:
    world = World(sum_model())
    with pytest.raises(ModelNotFound, match="nope"):
        asyncio.run(world.served.model_statistics("nope"))
    assert repr(world.served._pages) == "<RenderedPages 0 asked, 0 made>"


def test_messages_are_written_again_only_where_documents_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[str] = []

    def fill(name: str, document: Any) -> Any:
        filled.append(document["models"][0]["name"])
        return fill_message(name, document)

    monkeypatch.setattr(list_pages, "fill_message", fill)
    pages = index_pages()
    documents = [{"name": name, "version": "1", "state": "READY", "reason": ""} for name in ("a", "b")]
    for state in ("READY", "READY", "UNAVAILABLE"):
        documents[1] = documents[1] | {"state": state}
        page = whole(pages.page(IN_PROTOBUF, [pages.entry(IN_PROTOBUF, each) for each in documents], None))
        assert [each.state for each in message_of("RepositoryIndex", page).models] == ["READY", state]
    assert filled == ["a", "b", "b"]


def test_few_messages_are_kept_however_many_models_come_and_go() -> None:
    pages = index_pages()
    for number in range(MOST_WRITTEN + 10):
        pages.entry(IN_PROTOBUF, {"name": f"m{number}", "version": "1", "state": "READY", "reason": ""})
    assert len(pages._written) == MOST_WRITTEN
