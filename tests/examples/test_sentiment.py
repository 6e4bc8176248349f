"""The example of a tree: what its README says, by the real server and by direct calls, node by node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from docs.examples.sentiment.grammar import CLEAR, Grammar
from docs.examples.sentiment.train import Served
from docs.examples.sentiment.trees import Tree, forest_of, levels_of, parse
from tests.deploy.pages.commands import Command, commands, words
from tests.examples.readme import EXAMPLES, MOST_BYTES, MOST_BYTES_IN_ALL, asked_as_shown, facts_of, percent, sizes
from tests.support.processes import ROOT, ServerProcess, serving

EXAMPLE = EXAMPLES / "sentiment"
FACTS = facts_of(EXAMPLE / "trees.json")
SAMPLES = FACTS["samples"]
PREDICT = "/v1/models/sentiment:predict"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(EXAMPLE / "models", tmp_path_factory.mktemp("sentiment") / "log") as server:
        yield server


@pytest.fixture(scope="module")
def direct() -> Served:
    return Served()


# --- the server ---


def test_the_readme_shows_what_comes_back(server: ServerProcess) -> None:
    answer, shown = asked_as_shown(EXAMPLE, server)
    assert answer["outputs"].keys() == shown["outputs"].keys()
    for name, values in shown["outputs"].items():
        np.testing.assert_allclose(answer["outputs"][name], values, atol=1e-4)


@pytest.mark.parametrize(
    "sample", SAMPLES, ids=[f"{len(each['trees'])} trees, {row}" for row, each in enumerate(SAMPLES)]
)
def test_trees_are_what_direct_calls_of_the_cell_say(
    server: ServerProcess, direct: Served, sample: dict[str, Any]
) -> None:
    reply = server.client.post(PREDICT, json=sample["request"])
    answer = {name: np.array(values) for name, values in reply.json()["outputs"].items()}
    expected = direct.answer(forest_of([parse(text) for text in sample["trees"]]))
    for name, values in sample["answer"]["outputs"].items():
        np.testing.assert_allclose(answer[name], expected[name], rtol=0, atol=1e-6)
        np.testing.assert_allclose(answer[name], values, rtol=0, atol=1e-3)
    assert np.mean(answer["probabilities"].argmax(axis=1) == sample["labels"]) >= 0.9


def test_trees_of_one_request_share_calls(server: ServerProcess) -> None:
    forest = forest_of([parse(text) for text in SAMPLES[0]["trees"]])
    reply = server.client.post(PREDICT, json=forest.request)
    (nodes,) = [each for each in reply.headers["server-timing"].split(", ") if each.startswith("nodes;")]
    assert nodes.endswith(f'batch {levels_of(forest).count(0)}"')


def test_the_client_of_the_readme_shows_each_phrase(server: ServerProcess) -> None:
    def last_line(command: Command) -> list[str]:
        asking = [sys.executable, *words(command), "--url", server.url]
        done = subprocess.run(asking, cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout.splitlines()[-1].split(maxsplit=1)

    first, second = (text for text in SAMPLES[0]["trees"] if "far from" in text)
    assert parse(first).words() == parse(second).words()
    shown = commands("docs/examples/sentiment/README.md", "python")
    assert [last_line(each) for each in shown] == [["0%", first], ["100%", second]]


# --- the trees ---


def test_brackets_are_read_and_written() -> None:
    text = "((the film) (is (slow (but good))))"
    assert str(parse(text)) == text
    assert str(parse("the film (is slow)")) == "(the (film (is slow)))"
    assert parse("good") == Tree("good")


@pytest.mark.parametrize(
    ("text", "told"), [("(good", "not closed"), ("good)", "not opened"), ("", "words"), ("(a ())", "words")]
)
def test_brackets_that_do_not_match_are_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse(text)


def test_a_forest_numbers_words_then_inner_nodes() -> None:
    forest = forest_of([parse("(slow (but good))"), parse("((not bad) film)")])
    assert forest.words == ["slow", "but", "good", "not", "bad", "film"]
    assert forest.children == [[1, 2], [0, 6], [3, 4], [8, 5]]
    assert levels_of(forest) == [0, 1, 0, 1]
    assert [str(node) for node in forest.nodes[6:]] == [
        "(but good)",
        "(slow (but good))",
        "(not bad)",
        "((not bad) film)",
    ]
    with pytest.raises(ValueError, match="two words or more"):
        forest_of([parse("good")])


def test_a_sentence_of_the_grammar_is_clear_and_binary() -> None:
    grammar = Grammar(1)
    for tree in [grammar.sentence() for _ in range(200)]:
        assert CLEAR <= abs(tree.polarity) <= 1
        assert {len(node.parts) for node in tree.nodes()} == {0, 2}
        assert parse(str(tree)).words() == tree.words()


# --- the page and the models ---


def test_the_readme_has_the_measured_numbers() -> None:
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for name in ("held_out_accuracy", "majority_baseline", "bag_of_words", "bag_of_three_words_in_a_row"):
        assert f"| {percent(FACTS[name])} |" in page, name
    assert f"of {FACTS['held_out_count']:,} sentences" in page
    assert FACTS["held_out_accuracy"] > FACTS["bag_of_three_words_in_a_row"] + 0.2


def test_the_models_are_small() -> None:
    assert max(sizes(EXAMPLE)) < MOST_BYTES
    assert sum(sizes(EXAMPLE)) < MOST_BYTES_IN_ALL
