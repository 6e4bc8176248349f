from app.core.events import ModelPlaced, ModelStateChanged, tell_all
from app.instrumentation.model_facts import ModelDevices


def test_devices_are_shown_until_the_version_ends() -> None:
    placement = ModelDevices()
    tell = tell_all(placement.subscriptions)
    tell(ModelPlaced("m", 1, ("GPU:0", "GPU:1")))
    tell(ModelPlaced("n", 2, ("GPU:0",)))
    tell(ModelStateChanged("m", 1, "AVAILABLE"))
    assert placement.document() == {"m/1": ["GPU:0", "GPU:1"], "n/2": ["GPU:0"]}
    for _ in range(2):
        tell(ModelStateChanged("m", 1, "END"))
    assert set(placement.document()) == {"n/2"}
