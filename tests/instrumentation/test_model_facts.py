import pytest

from app.core.events import (
    BatchExecuted,
    Listener,
    ModelImproving,
    ModelPlaced,
    ModelStateChanged,
    RowsProbed,
    ShadowChecked,
    ShapesProbed,
    VariantsChosen,
    tell_all,
)
from app.instrumentation.model_facts import ModelFacts


def living() -> tuple[ModelFacts, Listener]:
    """Facts of versions that are being loaded, and how to tell them more."""
    facts = ModelFacts()
    tell = tell_all(facts.subscriptions)
    for name, version in (("m", 1), ("m", 2), ("n", 2)):
        tell(ModelStateChanged(name, version, "LOADING"))
    return facts, tell


def test_devices_are_shown_until_the_version_ends() -> None:
    facts, tell = living()
    tell(ModelPlaced("m", 1, ("GPU:0", "GPU:1")))
    tell(ModelPlaced("n", 2, ("GPU:0",), "it runs in a session, as it has references"))
    assert facts.shown("note") == {"n/2": "it runs in a session, as it has references"}
    tell(ModelStateChanged("m", 1, "AVAILABLE"))
    assert facts.shown("devices") == {"m/1": ["GPU:0", "GPU:1"], "n/2": ["GPU:0"]}
    for _ in range(2):
        tell(ModelStateChanged("m", 1, "END"))
    assert set(facts.shown("devices")) == {"n/2"}


def test_mixed_shapes_are_shown_until_the_version_ends() -> None:
    facts, tell = living()
    tell(ShapesProbed("m", 1, "f", True, "padded"))
    tell(ShapesProbed("m", 1, "g", False, "not padded"))
    tell(ShapesProbed("m", 2, "f", True, "padded"))
    tell(ModelStateChanged("m", 1, "AVAILABLE"))
    assert facts.shown("mixed_shapes") == {"m/1": {"f": "padded", "g": "not padded"}, "m/2": {"f": "padded"}}
    for _ in range(2):
        tell(ModelStateChanged("m", 1, "END"))
    assert set(facts.shown("mixed_shapes")) == {"m/2"}


def test_mixed_shapes_of_one_signature_can_be_looked_up() -> None:
    facts, tell = living()
    found = ShapesProbed("m", 1, "f", True, "padded")
    tell(found)
    assert facts.of("m", 1).shapes.get("f") == found
    assert facts.of("m", 1).shapes.get("g") is None
    assert facts.of("m", 2).shapes.get("f") is None


def test_execution_variants_are_shown_until_the_version_ends() -> None:
    facts, tell = living()
    tell(VariantsChosen("m", 1, "f", {1: ("xla", 1.416), 8: ("plain", 1.0)}))
    tell(VariantsChosen("m", 1, "g", {1: ("plain", 1.0)}))
    tell(VariantsChosen("m", 2, "f", {1: ("frozen", 2.0)}))
    tell(BatchExecuted("m", 1, "f", 1, 0, "idle", 0.1, [0.0]))
    assert facts.shown("variants")["m/1"] == {
        "f": [
            {"batch_size": 1, "variant": "xla", "speed_up": 1.42},
            {"batch_size": 8, "variant": "plain", "speed_up": 1.0},
        ],
        "g": [{"batch_size": 1, "variant": "plain", "speed_up": 1.0}],
    }
    for state in ("AVAILABLE", "UNLOADING"):
        tell(ModelStateChanged("m", 1, state))
        assert set(facts.shown("variants")) == {"m/1", "m/2"}
    tell(ModelStateChanged("m", 1, "END"))
    tell(ModelStateChanged("m", 1, "END"))
    assert set(facts.shown("variants")) == {"m/2"}


@pytest.mark.parametrize("stopped_first", [False, True])
def test_what_a_shadow_check_stopped_is_shown_as_stopped(stopped_first: bool) -> None:
    chosen = [
        VariantsChosen("m", 1, "f", {1: ("xla", 2.0), 8: ("plain", 1.0)}),
        ShapesProbed("m", 1, "f", True, "padded"),
        RowsProbed("m", 1, "f", False, "graph", "rows share calls"),
    ]
    stopped = [ShadowChecked("m", 1, "f", result, 0.1) for result in ("agrees", "variant", "padding", "sharing")]
    facts, tell = living()
    for event in (*stopped, *chosen) if stopped_first else (*chosen, *stopped):
        tell(event)
    found = facts.of("m", 1)
    assert found.variants["f"] == [{"batch_size": n, "variant": "plain", "speed_up": 1.0} for n in (1, 8)]
    assert found.mixed_shapes["f"].startswith("only equal shapes share a batch: a check of answers found")
    assert found.rows["f"].startswith("each request runs alone: a check of answers found")


def test_what_is_told_of_a_version_after_its_end_is_not_shown() -> None:
    facts, tell = living()
    findings = [
        ModelPlaced("m", 1, ("CPU:0",)),
        ModelImproving("m", 1, "larger batches"),
        RowsProbed("m", 1, "f", False, "graph", "rows share calls"),
        ShadowChecked("m", 1, "f", "padding", 0.1),
        ShapesProbed("m", 1, "f", True, "padded"),
        VariantsChosen("m", 1, "f", {1: ("xla", 2.0)}),
    ]
    for event in (*findings, ModelStateChanged("m", 1, "END"), *findings):
        tell(event)
    assert ("m", 1) not in facts.versions
