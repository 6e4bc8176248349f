"""Models that are looked at without loading them: which versions would be served, and what is told of the others."""

from pathlib import Path

import numpy as np
import pytest

from app.cli.offline_models import ModelFault, OfflineModel, OfflineModels
from app.core.errors import InferenceFailed
from app.core.inference import ModelSignature, TensorSpec
from app.pipelines.references import PipelineInvalid
from app.repository.disk.disk_layout import DiskLayout, IgnoredFolder
from app.repository.model_config import ModelConfig
from app.repository.version_policy import Latest

MODELS = Path("/models")
Y = TensorSpec("y", np.dtype(np.float32), (None,))
SIGNATURE = ModelSignature("serving_default", {"x": Y}, {"y": Y})


def look(name: str, path: Path) -> OfflineModel:
    """Version 3 cannot be served; `pipe` is a pipeline."""
    if path.name == "3":
        raise InferenceFailed("it is broken")
    return OfflineModel(path, None if name == "pipe" else {"serving_default": SIGNATURE})


def models(*versions: int, policy: Latest = Latest(), listed: bool = False, **more: object) -> OfflineModels:  # noqa: B008 - it is frozen
    configs = {name: ModelConfig(name, MODELS / name, policy, {"stable": 1}) for name in ("m", "pipe")}
    folders = {name: {number: MODELS / name / str(number) for number in versions} for name in configs}
    layout = DiskLayout(configs, folders, **more)  # type: ignore[arg-type]  # those of DiskLayout
    return OfflineModels(layout, look, listed=listed)


def why_not(known: OfflineModels, model: str) -> str:
    with pytest.raises(PipelineInvalid) as caught:
        known.check(f"steps: {{a: {{model: '{model}', inputs: {{x: x}}}}}}\noutputs: {{y: a.y}}".encode())
    return str(caught.value)


def test_where_the_newest_version_fails_the_one_before_would_be_served() -> None:
    known = models(1, 2, 3)
    assert list(known.served("m")) == [2]
    assert known.faults("m") == [ModelFault(MODELS / "m" / "3", "it is broken")]
    known = models(1, 3, 4, policy=Latest(3))
    assert sorted(known.served("m")) == [1, 4]
    assert models().served("m") == {}
    assert models(1).served("other") == {}


def test_versions_that_no_folder_holds_are_no_versions() -> None:
    known = models(1, incomplete={"m": {2: "it holds no saved_model.pb"}})
    assert known.faults("m") == [ModelFault(MODELS / "m" / "2", "it holds no saved_model.pb")]
    assert list(known.served("m")) == [1]


def test_a_step_is_told_why_there_is_no_such_model() -> None:
    assert why_not(models(3), "m") == "step 'a': it waits for m (Model m version 3 is not loaded: it is broken)"
    assert why_not(models(1), "m:7") == "step 'a': model 'm' has no version 7, only 1"
    assert why_not(models(1), "other") == "step 'a': there is no model 'other' in the list of models, only 'm', 'pipe'"
    assert why_not(models(1), "pipe") == "step 'a': pipe is a pipeline: a step should be a model"


def test_of_many_versions_the_first_few_are_named() -> None:
    told = why_not(models(*range(10, 40)), "m:7")
    assert told == "step 'a': model 'm' has no version 7, only 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ..."


def test_only_a_list_says_which_labels_and_versions_there_are() -> None:
    text = b"steps: {a: {model: 'm:%s', inputs: {x: x}}}\noutputs: {y: a.y}"
    known = models(1, 2)
    for pinned in (b"1", b"stable"):
        known.check(text % pinned)
    assert len(known.notes) == 2
    assert list(known.served("m")) == [2], "what a step names is not what would be served"

    assert why_not(models(1, 2, listed=True), "m:1") == "step 'a': model 'm' has no version 1, only 2"
    assert why_not(models(1, 2, listed=True), "m:stable").startswith(
        "step 'a': it waits for m:stable (Servable not found"
    )
    assert why_not(models(1, listed=True), "m:new") == "step 'a': model 'm' has no label 'new', only 'stable'"
    known = models(1, 2, policy=Latest(2), listed=True)
    known.check(text % b"stable")
    assert not known.notes


@pytest.mark.parametrize("listed", [True, False])
def test_a_folder_that_cannot_be_read_is_a_fault_and_the_reason(listed: bool) -> None:
    ignored = frozenset(
        {
            IgnoredFolder(MODELS / "m", "cannot be read: Permission denied"),
            IgnoredFolder(MODELS / "pipe" / "m", "its name is not a version"),
        }
    )
    known = models(unreadable=frozenset({"m"}), ignored=ignored, listed=listed)
    if not listed:
        known = OfflineModels(DiskLayout(unreadable=frozenset({"m"}), ignored=ignored), look, listed=False)
    assert known.faults("m") == [ModelFault(MODELS / "m", "cannot be read: Permission denied")]
    assert why_not(known, "m") == "step 'a': it waits for m (Model m is not loaded: cannot be read: Permission denied)"
