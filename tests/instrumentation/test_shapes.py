from app.core.events import ModelStateChanged, ShapesProbed, tell_all
from app.instrumentation.model_facts import MixedShapes


def test_what_was_found_is_shown_until_the_version_ends() -> None:
    shapes = MixedShapes()
    tell = tell_all(shapes.subscriptions)
    tell(ShapesProbed("m", 1, "f", True, "padded"))
    tell(ShapesProbed("m", 1, "g", False, "not padded"))
    tell(ShapesProbed("m", 2, "f", True, "padded"))
    tell(ModelStateChanged("m", 1, "AVAILABLE"))
    assert shapes.document() == {"m/1": {"f": "padded", "g": "not padded"}, "m/2": {"f": "padded"}}
    for _ in range(2):
        tell(ModelStateChanged("m", 1, "END"))
    assert set(shapes.document()) == {"m/2"}


def test_what_was_found_for_a_signature() -> None:
    shapes = MixedShapes()
    found = ShapesProbed("m", 1, "f", True, "padded")
    tell_all(shapes.subscriptions)(found)
    assert shapes.found("m", 1, "f") == found
    assert shapes.found("m", 1, "g") is None
    assert shapes.found("m", 2, "f") is None
