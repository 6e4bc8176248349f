"""`python -m app` and the console script `ferry`: they differ from app.cli.main in their first moments only.

A container may be stopped while Python still imports; process 1 ignores signals that it has no
disposition for. So `serve` takes them before any import that takes time.
"""

import os
import signal
import sys


def _leave(*_: object) -> None:
    """Nothing was accepted yet, so nothing is lost."""
    os._exit(0)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _leave)
    from app.cli import main as run  # noqa: PLC0415 - after the signals

    run()


if __name__ == "__main__":
    main()
