"""The child process of an import: it reads the source, exports it, and proves that both answer alike.

Its parent (in_child.py) is on the other side of its standard input, a socket: it sends one order, and gets lines of
JSON, up to a result or a failure. The process ends when its parent does.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from app.frontends.process_arguments import end_with
from app.importing.limits import cut_network, limit_this_process, write_only_below
from app.importing.order import CannotImport, ImportOrder
from app.importing.result import ImportResult

#: Called with each stage.
Report = Callable[[str], None]

#: Imports a source of a format into a staging folder.
Make = Callable[[ImportOrder, str, Path, Report], ImportResult]

#: Characters of an error of a library that are told.
_MOST_CHARACTERS = 400


def main(make: Make | None = None) -> None:
    """The whole life of the child; `make` in place of the import."""
    end_with(os.getppid())
    os.environ["KERAS_BACKEND"] = "tensorflow"  # whatever its caller trains with
    parent = socket.socket(fileno=os.dup(0))

    def say(what: str, text: str) -> None:
        parent.sendall(json.dumps((what, text)).encode() + b"\n")

    message = json.loads(parent.makefile("rb").readline())
    order = ImportOrder(**message["order"])
    staging = Path(message["staging"])
    limit_this_process(order.memory_bytes)
    write_only_below(staging)
    unlimited = cut_network()
    result = result_or_failure(make or import_here, order, message["kind"], staging, lambda stage: say("stage", stage))
    if isinstance(result, str):
        say("failure", result)
        return
    if unlimited:
        result = replace(result, notes=[*result.notes, f"it ran with network: {unlimited}"])
    say("result", json.dumps(asdict(result)))


def result_or_failure(make: Make, order: ImportOrder, kind: str, staging: Path, report: Report) -> ImportResult | str:
    """What `make` returns, or a line that tells why it made nothing."""
    try:
        return make(order, kind, staging, report)
    except CannotImport as error:
        return _one_line(str(error))
    except MemoryError:
        return f"it needs more than {order.memory_bytes / 2**30:.1f} GiB of memory (--memory-gib)"
    except Exception as error:  # whatever a library raises for a broken source
        return _one_line(f"{type(error).__name__}: {error}")


def import_here(order: ImportOrder, kind: str, staging: Path, report: Report) -> ImportResult:
    """Imports a source of this format into `staging`/version, in this process. Raises what libraries raise."""
    # 1. The runtime before all else: it sets how TensorFlow runs in this process.
    report("TensorFlow starts")
    from app.importing.proof import Proof  # noqa: PLC0415 - imports TensorFlow, after the limits

    proof = Proof()

    # 2. The model.
    from app.importing.accept import accepting  # noqa: PLC0415 - imports TensorFlow
    from app.importing.export import export, renamed  # noqa: PLC0415 - imports TensorFlow
    from app.importing.formats import read  # noqa: PLC0415 - after the limits
    from app.importing.written.labels import labels_of, write_labels  # noqa: PLC0415 - after the limits
    from app.importing.written.recorded_calls import write_recorded_calls  # noqa: PLC0415 - imports TensorFlow

    report("the source is read")
    source = accepting(renamed(read(kind, Path(order.source), order), order.rename), order)
    labels = labels_of(source, order)

    # 3. Its export, and what is written beside it.
    report("the model is exported")
    version = staging / "version"
    export(source, version)

    # 4. The proof.
    report("the export is compared with its source")
    proven = proof.of(source, version, order)

    # 5. What is known of it, for those who serve it.
    notes = write_labels(version, labels, proven.signatures, asked=bool(order.labels))
    write_recorded_calls(version, proven.calls)
    return replace(proven.result, notes=[*proven.result.notes, *notes])


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
