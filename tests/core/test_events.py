from app.core.events import BatchExecuted, ModelStateChanged, RequestFinished, VariantsChosen, ignore, tell_all

FINISHED = RequestFinished("p", "200", "m", 1, "s", 0.1)
CHANGED = ModelStateChanged("m", 1, "END")


def test_each_listener_gets_the_events_that_it_subscribed_to_in_order() -> None:
    heard: list[tuple[str, object]] = []
    tell = tell_all(
        {RequestFinished: lambda event: heard.append(("first", event))},
        {ModelStateChanged: lambda event: heard.append(("second", event))},
        {RequestFinished: lambda event: heard.append(("third", event)), ModelStateChanged: ignore},
    )
    tell(FINISHED)
    tell(CHANGED)
    assert heard == [("first", FINISHED), ("third", FINISHED), ("second", CHANGED)]


def test_an_event_without_a_subscriber_is_dropped() -> None:
    tell_all()(FINISHED)
    tell_all({RequestFinished: lambda _: 1 / 0})(VariantsChosen("m", 1, "s", {}))


def test_events_are_plain_tuples_that_cross_a_wire() -> None:
    assert tuple(FINISHED) == ("p", "200", "m", 1, "s", 0.1)
    assert RequestFinished(*tuple(FINISHED)) == FINISHED
    batch = BatchExecuted("m", 1, "s", 2, 0, "idle", 0.1, [0.1, 0.2])
    assert BatchExecuted(*tuple(batch)) == batch
