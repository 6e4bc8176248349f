"""The console script `ferry-model-server`, and `python -m app.model_server`.

As in app/__main__.py, signals are taken before any import that takes time.
"""

import os
import signal
import sys


def _leave(*_: object) -> None:
    """Nothing was accepted yet, so nothing is lost."""
    os._exit(0)


def main() -> None:
    """Runs the command line of this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    from app.model_server.cli import run  # noqa: PLC0415 - after the signals

    sys.exit(run(sys.argv))


if __name__ == "__main__":
    main()
