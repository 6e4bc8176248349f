"""The console script `ferry-model-server`, and `python -m app.model_server`.

As in app/__main__.py, signals are handled before any import that takes time.
"""

import os
import signal
import sys


def _leave(*_: object) -> None:
    """No request was accepted yet, so none is lost. Later signals: app/server/http_server.py."""
    os._exit(0)


def main() -> None:
    """Run the command line of this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    from app.model_server.cli import run  # noqa: PLC0415 - after the signals

    sys.exit(run(sys.argv))


if __name__ == "__main__":
    main()
