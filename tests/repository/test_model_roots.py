from os.path import normpath
from pathlib import Path

import pytest

from app.core.errors import Forbidden
from app.repository.model_config import ModelConfig
from app.repository.model_roots import ModelRoots


def models(*paths: str) -> list[ModelConfig]:
    return [ModelConfig("m", Path(path)) for path in paths]


def roots(*configured: str, listed: tuple[str, ...] = ()) -> ModelRoots:
    made = ModelRoots(map(Path, configured))
    made.extend(models(*listed))
    return made


def test_callers_may_name_what_lies_beside_the_operators_models() -> None:
    made = roots(listed=("/srv/models/bert", "/data/v2/digits/"))
    made.check(models("/srv/models/bert", "/srv/models/gpt", "/srv/models/more/gpt", "/data/v2/x", "/srv/models"))


@pytest.mark.parametrize(
    "path",
    ["/etc", "/", "/srv", "/srv/modelsbeside/m", "/srv/models/../secret", "/srv/models/../../etc", "/data/other/m"],
)
def test_and_nothing_else(path: str) -> None:
    made = roots(listed=("/srv/models/bert", "/data/v2/digits"))
    with pytest.raises(
        Forbidden, match=r"callers may name only folders below /data/v2, /srv/models \(setting model_ro"
    ):
        made.check(models("/srv/models/bert", path))


def test_a_link_below_a_root_opens_nothing_beside_its_target(tmp_path: Path) -> None:
    """The system follows the link before it goes up; a comparison of written paths does not."""
    root, elsewhere = tmp_path / "models", tmp_path / "data"
    for folder in (root, elsewhere / "bert", elsewhere / "secret"):
        folder.mkdir(parents=True)
    (root / "bert").symlink_to(elsewhere / "bert")
    led = root / "bert" / ".." / "secret"
    assert led.exists()
    assert not Path(normpath(led)).exists()
    made = roots(listed=(f"{root}/bert",))
    made.check(models(f"{root}/bert"))
    with pytest.raises(Forbidden, match=r"without '\.\.'"):
        made.check(models(str(led)))


def test_the_operators_own_paths_are_taken_as_they_are_written() -> None:
    made = roots(listed=("/srv/app/../models/bert",))
    made.check(models("/srv/app/../models/bert", "/srv/models/gpt"))
    with pytest.raises(Forbidden):
        made.check(models("/srv/app/../models/gpt"))


def test_a_model_in_the_root_folder_opens_nothing_but_itself() -> None:
    made = roots(listed=("/bert",))
    made.check(models("/bert", "/bert/x"))
    with pytest.raises(Forbidden):
        made.check(models("/etc"))


def test_the_setting_alone_decides_if_it_is_given() -> None:
    made = roots("/srv/models/", listed=("/data/digits",))
    made.check(models("/srv/models/bert"))
    with pytest.raises(Forbidden):
        made.check(models("/data/digits"))


def test_what_the_operator_lists_later_counts_too() -> None:
    made = roots()
    with pytest.raises(Forbidden, match="folders below none"):
        made.check(models("/srv/models/bert"))
    made.extend(models("/srv/models/gpt"))
    made.check(models("/srv/models/bert"))
    assert repr(made) == "<ModelRoots /srv/models>"
