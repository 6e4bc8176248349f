import logging

import pytest

from app.core.events import ModelPlaced, ModelStateChanged, RequestFinished, RowsProbed, tell_all
from app.instrumentation.logs import SUBSCRIPTIONS


def test_the_life_of_models_is_logged_and_requests_are_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tell = tell_all(SUBSCRIPTIONS)
        tell(ModelStateChanged("m", 1, "AVAILABLE"))
        tell(ModelStateChanged("m", 2, "END", "no graph"))
        tell(RequestFinished("p", "200", "m", 1, "s", 0.1))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "Model m version 1: AVAILABLE"),
        ("ERROR", "Model m version 2: END: no graph"),
    ]
    assert [(vars(record)["model"], vars(record)["version"]) for record in caplog.records] == [("m", 1), ("m", 2)]


def test_how_a_version_was_loaded_is_logged_where_it_is_unusual(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tell = tell_all(SUBSCRIPTIONS)
        tell(ModelPlaced("m", 1, ["CPU:0"]))
        tell(ModelPlaced("m", 2, ["CPU:0"], "it runs in a session"))
    assert caplog.messages == ["Model m version 2: it runs in a session"]


def test_rows_that_see_each_other_are_a_warning_and_no_rows_are_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tell = tell_all(SUBSCRIPTIONS)
        tell(RowsProbed("m", 1, "s", False, "graph", "requests share calls"))
        tell(RowsProbed("m", 1, "s", True, "", "each request runs alone: Max runs over the rows"))
        tell(RowsProbed("m", 1, "s", True, "", "each request runs alone: no rows", whole=True))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
