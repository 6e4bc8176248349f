import logging
from collections.abc import Iterator

import pytest

from app.core.events import ModelStateChanged, RequestFinished, tell_all
from app.instrumentation.logs import SUBSCRIPTIONS, configure


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield root
    root.setLevel(level)
    root.handlers[:] = handlers


def test_configure_sets_the_level(root: logging.Logger) -> None:
    configure("warning")
    assert root.level == logging.WARNING


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
