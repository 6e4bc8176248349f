"""The files that docs/pipelines.md shows: each fits models as the page tells of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import yaml

from app.core.inference import Dimension, ModelSignature, TensorSpec
from app.pipelines.compilation import compile_pipeline
from app.pipelines.document import parse
from app.pipelines.references import ModelReference
from tests.support.processes import ROOT

Shapes = Mapping[str, tuple[Dimension, ...]]

PAGE = (ROOT / "docs/pipelines.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```yaml\n# (\S+?):?(?: [^\n]*)?\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL))

IMAGE = (None, None, None)


def model(inputs: Shapes, outputs: Shapes) -> Mapping[str, ModelSignature]:
    def specs(shapes: Shapes) -> dict[str, TensorSpec]:
        return {name: TensorSpec(name, np.dtype(np.float32), shape) for name, shape in shapes.items()}

    return {"serving_default": ModelSignature("serving_default", specs(inputs), specs(outputs))}


MODELS = {
    "detector": model({"image": IMAGE}, {"boxes": (None, None, 4)}),
    "crop": model({"image": IMAGE, "box": (None, 4)}, {"score": (None,)}),
    "rater": model({"image": IMAGE}, {"rating": (None,)}),
    "embed": model({"token": (None,)}, {"state": (None, 8)}),
    "cell": model({"left": (None, 8), "right": (None, 8)}, {"state": (None, 8)}),
    "head": model({"state": (None, 8)}, {"scores": (None, 2)}),
}


def outputs_of(file: str) -> dict[str, tuple[Dimension, ...] | None]:
    def find(reference: ModelReference) -> Mapping[str, ModelSignature]:
        return MODELS[reference.name]

    signature = compile_pipeline(parse(FILES[file].encode()), find).signature
    return {name: spec.shape for name, spec in signature.outputs.items()}


def test_the_cascade_is_that_of_the_example() -> None:
    file = "docs/examples/cascade/models/read/1/pipeline.yaml"
    shown, shipped = yaml.safe_load(FILES[file]), yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    assert shown["steps"] == shipped["steps"]
    assert shown["outputs"].items() <= shipped["outputs"].items()


def test_boxes_are_read_one_by_one_and_a_rating_may_be_missing() -> None:
    assert outputs_of("models/scene/1/pipeline.yaml") == {
        "boxes": (None, None, 4),
        "scores": (None, None),
        "rating": (None,),
    }


def test_trees_have_the_form_that_is_told() -> None:
    assert outputs_of("models/reviews/1/pipeline.yaml") == {"scores": (None, 2)}


def test_no_file_is_left_out() -> None:
    assert len(FILES) == PAGE.count("```yaml") == 3
