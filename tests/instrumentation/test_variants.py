from app.core.events import BatchExecuted, ModelStateChanged, VariantsChosen, tell_all
from app.instrumentation.model_facts import ExecutionVariants


def test_what_was_chosen_is_shown_until_the_version_ends() -> None:
    variants = ExecutionVariants()
    tell = tell_all(variants.subscriptions)
    tell(VariantsChosen("m", 1, "f", {1: ("xla", 1.416), 8: ("plain", 1.0)}))
    tell(VariantsChosen("m", 1, "g", {1: ("plain", 1.0)}))
    tell(VariantsChosen("m", 2, "f", {1: ("frozen", 2.0)}))
    tell(BatchExecuted("m", 1, "f", 1, 0, "idle", 0.1, [0.0]))
    assert variants.document()["m/1"] == {
        "f": [
            {"batch_size": 1, "variant": "xla", "speed_up": 1.42},
            {"batch_size": 8, "variant": "plain", "speed_up": 1.0},
        ],
        "g": [{"batch_size": 1, "variant": "plain", "speed_up": 1.0}],
    }
    for state in ("AVAILABLE", "UNLOADING"):
        tell(ModelStateChanged("m", 1, state))
        assert set(variants.document()) == {"m/1", "m/2"}
    tell(ModelStateChanged("m", 1, "END"))
    tell(ModelStateChanged("m", 1, "END"))
    assert set(variants.document()) == {"m/2"}
