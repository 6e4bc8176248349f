"""The texts that a protocol raises are in its own words: read from the sources, so that none is forgotten.

What texts of parts that all protocols share become is read from answers, in tests/every_protocol.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.every_protocol.own_words import foreign_words
from tests.support.processes import ROOT

PROTOCOLS = {"open_inference": "v2", "tensorflow_serving": "v1"}


def texts_raised(file: Path) -> Iterator[str]:
    """The text of each exception that a file makes, with a blank for each value in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        made = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Return) else None
        if isinstance(made, ast.Call):
            yield " ".join(
                each.value for each in ast.walk(made) if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


@pytest.mark.parametrize("folder", PROTOCOLS)
def test_no_text_has_a_word_of_the_other_family(folder: str) -> None:
    texts = [text for file in (ROOT / "app/protocols" / folder).rglob("*.py") for text in texts_raised(file)]
    assert len([text for text in texts if " " in text]) > 10
    assert {text: found for text in texts if (found := foreign_words(PROTOCOLS[folder], text))} == {}


@pytest.mark.parametrize(
    ("target", "text", "found"),
    [
        ("v2", "Servable not found for request: Latest(m)", ["servable"]),
        ("inference.GRPCInferenceService/ModelInfer", 'Serving signature key "s" not found.', ["serving signature"]),
        ("v2", "Request for unknown model: 'm' is not found", []),
        ("/v1/models/m:predict", "Request for unknown model: 'm' is not found", ["unknown model"]),
        ("/tensorflow.serving.PredictionService/Predict", "Input 'x' has datatype FP32", ["datatype"]),
    ],
)
def test_words_of_the_other_family_are_found(target: str, text: str, found: list[str]) -> None:
    assert foreign_words(target, text) == found
