"""The first lines of a server's log: what it serves, where its pages are, and how to call the first ready model.

Where it listens is told by what listens: app/transports/ports.py and app/transports/grpc/server.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from json import dumps
from shlex import quote
from typing import Any
from urllib.parse import quote as percent_encoded

from app import __version__
from app.config.settings import Settings
from app.core.errors import ServingError
from app.core.events import ModelStateChanged, Subscriptions
from app.core.inference import DEFAULT_SIGNATURE
from app.core.interfaces import ServedModel, ServedRepository
from app.core.versions import VersionState
from app.protocols.operations.openapi.model_bodies import predict_body

logger = logging.getLogger("ferry")

#: A longer example is not shown. Chosen: a few lines of a terminal, such as 64 pixels; images are longer.
_MOST_LETTERS = 400

_ANY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not listened on


class FirstLines:
    """The writer of a server's first lines.

    Args:
        where: the name of what says which models there are: a folder, or a list.
        repository: gives the models' repository, which is made after this object.

    Attributes:
        url: the URL of HTTP; empty while its port is unknown, and then no line is written that needs it.
        subscriptions: the events that it hears.
    """

    def __init__(self, settings: Settings, where: str, repository: Callable[[], ServedRepository]) -> None:
        self.url = self._pages = ""  # _pages: the URL of the port that has the pages of operators
        self.subscriptions: Subscriptions = {ModelStateChanged: self._model_state_changed}
        self._settings = settings
        self._where = where
        self._repository = repository
        self._found = self._called = False  # what has been told

    def listens(self, port: int) -> None:
        """Notes the port of HTTP; 0 if it is not known."""
        settings = self._settings
        tls = bool(settings.tls_certificate)
        self.url = self._url(port, tls=tls) if port else ""
        if port and settings.operator_port:
            self._pages = self._url(settings.operator_port, tls=tls and settings.operator_port_tls != "off")
        else:
            self._pages = self.url

    def _url(self, port: int, *, tls: bool) -> str:
        host = "localhost" if self._settings.host in _ANY_ADDRESS else self._settings.host
        return f"http{'s' * tls}://{f'[{host}]' if ':' in host else host}:{port}"

    def begin(self) -> None:
        """Writes the line of the start."""
        pages = f"; pages: {self._pages}/docs (API), /health, /metrics" if self._pages else ""
        logger.info("Ferry %s serves the models of %s%s", __version__, self._where, pages)

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if not self._found:
            self._found = True
            logger.info("Models: %s", ", ".join(self._repository().names()))
        if self._called or not self.url or event.state is not VersionState.AVAILABLE:
            return
        with suppress(ServingError):  # it has gone
            call = call_of(self._repository().resolve(event.model), self.url, key=bool(self._settings.access_file))
            logger.info("Call it: %s", call, extra={"model": event.model, "version": event.version})
            self._called = True


def call_of(model: ServedModel, url: str, *, key: bool = False) -> str:
    """A command that calls the model; if the model has no example, a command that shows its inputs.

    `key`: the command sends a key, which the reader has in a variable.
    """
    examples = predict_body(model.name, model.signatures)["examples"]
    first = examples.get(DEFAULT_SIGNATURE) or next(iter(examples.values()), None)
    return command_for(model.name, first["value"] if first else None, url, key=key)


def command_for(model: str, document: Any, url: str, *, key: bool = False) -> str:
    """A command that sends a predict document; one that shows the model's inputs without a document, or a short form.

    A long document whose lists repeat one value is made by Python, in a pipe.
    """
    curl = """curl -H "x-api-key: $KEY\"""" if key else "curl"
    path = f"{url}/v1/models/{percent_encoded(model)}"
    body = dumps(document, separators=(",", ":")) if document else ""
    if 0 < len(body) <= _MOST_LETTERS:
        return f"{curl} -d {quote(body)} {quote(f'{path}:predict')}"
    program = f"import json; print(json.dumps({_expression(document)}))" if document else ""
    if 0 < len(program) <= _MOST_LETTERS:
        return f"python3 -c {quote(program)} | {curl} -d @- {quote(f'{path}:predict')}"
    return f"{curl} {quote(f'{path}/metadata')} shows what {model} takes"


def _expression(value: Any) -> str:
    """A value of JSON as an expression of Python, in which lists of equal values are products."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(name)}: {_expression(each)}" for name, each in value.items()) + "}"
    if not isinstance(value, list):
        return repr(value)
    if len(value) > 1 and all(each == value[0] for each in value):
        return f"[{_expression(value[0])}] * {len(value)}"
    return f"[{', '.join(map(_expression, value))}]"
