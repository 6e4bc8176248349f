"""Does a server's memory grow with each new version of a model? RSS over a hundred versions of each kind of table.

    python -m bench.swaps [--swaps 100] [--kinds file mutable ...] [--most-growth 3] [--json FILE]

For each kind of table a server of its own: a new version is put, asked for a key as soon as it is served, and the
version before it is removed, again and again. RSS is compared after a fifth of the swaps (by then the allocator has
what it keeps for the next version) and after the last ones: of each the least of five swaps. Exits with 1 if it grew
by more than `--most-growth` percent. Predicted: below 3 % for each kind.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from bench.support.live_server import live_process, resident_mib
from tests.runtimes.tensorflow.saved_model import table_models

_KINDS = {make.__name__.removeprefix("make_"): make for make in table_models.KINDS}

_OF_NUMBERS = {"dense_table", "tensorflow_1_iterator"}

#: Seconds until a new version is served, at most.
_MOST_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=list(_KINDS))
    parser.add_argument("--most-growth", type=float, default=3.0, help="percent; exit 1 above")
    parser.add_argument("--json", type=Path, help="file for RSS in MiB after each swap")
    options = parser.parse_args()
    found = {}
    for kind in options.kinds:
        found[kind] = _swapped(kind, options.swaps)
        print(f"{kind:22} {growth_percent(found[kind]):+.1f} %  {found[kind][0]:.0f} MiB at first", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found))
    sys.exit(any(growth_percent(mib) > options.most_growth for mib in found.values()))


def growth_percent(mib: Sequence[float]) -> float:
    """From the first fifth of the swaps to the last ones."""
    early = len(mib) // 5
    return 100 * (min(mib[-5:]) / min(mib[early : early + 5]) - 1)


def _swapped(kind: str, swaps: int) -> list[float]:
    """RSS in MiB after each swap."""
    with tempfile.TemporaryDirectory() as folder:
        made, model = Path(folder, "made"), Path(folder, "models", "words")
        _KINDS[kind](made)
        shutil.copytree(made, model / "1")
        key = 77 if kind in _OF_NUMBERS else "77"
        with live_process(models=model.parent, poll_interval_s=0.1, settle_s=0) as (port, pid):
            seen = []
            for version in range(2, swaps + 2):
                shutil.copytree(made, Path(folder, "draft")).rename(model / str(version))
                _await_take_over(port, model, version, key)
                seen.append(resident_mib(pid))
            return seen


def _await_take_over(port: int, model: Path, version: int, key: str | int) -> None:
    """Removes the version before as soon as this one is served."""
    until = time.monotonic() + _MOST_S
    while not _answers(port, version, key):
        if time.monotonic() > until:
            raise RuntimeError(f"version {version} is not served after {_MOST_S:g} s")
        time.sleep(0.05)
    shutil.rmtree(model / str(version - 1))
    while _answers(port, version - 1, key):
        time.sleep(0.05)


def _answers(port: int, version: int, key: str | int) -> bool:
    """Whether the version is served; its answer to a key is right then."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_MOST_S)
    with closing(connection):
        path = f"/v1/models/words/versions/{version}"
        connection.request("GET", path)
        status = json.loads(connection.getresponse().read())
        if status.get("model_version_status", [{}])[0].get("state") != "AVAILABLE":
            return False
        connection.request("POST", path + ":predict", json.dumps({"instances": [key]}))
        reply = connection.getresponse()
        answer = json.loads(reply.read())
    if reply.status == 200 and answer != {"predictions": [77]}:
        raise RuntimeError(f"version {version} answers {answer}")
    return True


if __name__ == "__main__":
    main()
