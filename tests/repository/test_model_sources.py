from pathlib import Path

from app.repository.disk.disk_layout import DiskLayout, IgnoredFolder
from app.repository.model_config import ModelConfig
from app.repository.model_sources import ModelList, ModelsFolder
from app.repository.version_policy import All
from tests.repository.fakes import add


def test_each_subfolder_with_a_version_is_a_model_of_its_name(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    (tmp_path / "no-model").mkdir()
    layout = ModelsFolder(tmp_path, All()).scan()
    assert layout.configs == {"a": ModelConfig("a", tmp_path / "a", All())}
    assert str(ModelsFolder(tmp_path)) == str(tmp_path)


def test_a_listed_model_is_known_whatever_its_folder_holds(tmp_path: Path) -> None:
    version = add(tmp_path, "there", 1)
    (tmp_path / "empty").mkdir()
    configs = [ModelConfig(name, tmp_path / name) for name in ("there", "empty", "missing")]
    assert ModelList(configs).scan() == DiskLayout(
        {config.name: config for config in configs},
        {"there": {1: version}},
        frozenset(
            {
                IgnoredFolder(tmp_path / "empty", "it holds no version folder, named by a whole number"),
                IgnoredFolder(tmp_path / "missing", "cannot be read: No such file or directory"),
            }
        ),
        frozenset({"missing"}),
    )
    assert str(ModelList(configs)) == "the list of models"


def test_a_layout_without_a_model_knows_nothing_of_it(tmp_path: Path) -> None:
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    assert ModelsFolder(tmp_path).scan().without({"a"}) == ModelList([ModelConfig("b", tmp_path / "b")]).scan()
    missing = ModelList([ModelConfig("a", tmp_path / "nowhere")]).scan()
    assert not missing.without({"a"}).unreadable
