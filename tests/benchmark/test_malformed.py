from pathlib import Path

from bench import malformed


def test_it_makes_the_models_that_it_attacks(tmp_path: Path) -> None:
    malformed._make_models(tmp_path)
    made = {path.parent.parent.name for path in tmp_path.glob("*/1/saved_model.pb")}
    assert made == {*malformed._SHIPPED, *malformed._MADE}
