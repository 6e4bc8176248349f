"""What the proof by graph says of the rows of SavedModels in given folders: public models, or your own.

    python -m bench.public_rows FOLDER ... [--import tensorflow_text ...] [--json FILE] [--unknown FILE]

Every folder below that holds a saved_model.pb is loaded as the server loads it. Prints, for each signature, the
verdict, the reason, the milliseconds of the proof and the nodes of the graph with all functions that it calls.
`--import` names modules that register operations. Goal: 70 of 93 signatures of public models proven.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from app.core.graph_rows import GraphRows
from app.core.inference import ModelSignature
from app.runtime import Runtime, RuntimeOptions, create_runtime
from app.runtimes.tensorflow.execution import signature_function
from app.runtimes.tensorflow.row_proof.proof import rows_of_signature
from app.runtimes.tensorflow.saved_model import session_model

#: From the worst to the best: a signature is as its worst output.
_ORDER = ("mixes", "unknown", "no rows", "proven")


@dataclass(slots=True)
class Proof:
    """What the proof cost."""

    milliseconds: float = 0.0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    model: str
    signature: str
    verdict: str
    reason: str
    milliseconds: float
    nodes: int


class Watch:
    """Times the proofs of a model while it is loaded; they come in the order of its signatures."""

    def __init__(self) -> None:
        self._proofs: dict[int, Proof] = {}

    def __enter__(self) -> Watch:
        signature_function.rows_of_signature = session_model.rows_of_signature = self._timed  # type: ignore[attr-defined] # its own name there
        return self

    def __exit__(self, *_: object) -> None:
        signature_function.rows_of_signature = session_model.rows_of_signature = rows_of_signature  # type: ignore[attr-defined] # likewise

    def of(self, found: GraphRows | None) -> Proof:
        return self._proofs.get(id(found), Proof())

    def _timed(self, signature: ModelSignature, graph: Any, *arguments: Any, **facts: Any) -> GraphRows | None:
        begin_s = time.perf_counter()
        found = rows_of_signature(signature, graph, *arguments, **facts)
        self._proofs[id(found)] = Proof(1e3 * (time.perf_counter() - begin_s), _nodes(graph))
        return found


def _nodes(graph: Any) -> int:
    return len(graph.node) + sum(len(function.node_def) for function in graph.library.function)


def folders_of(roots: Sequence[Path]) -> list[Path]:
    return sorted(each.parent for root in roots for each in root.rglob("saved_model.pb"))


def lines_of(runtime: Runtime, folder: Path) -> Iterator[Line]:
    """One for each signature; one for the model if it does not load."""
    name = "/".join(folder.parts[-2:])
    try:
        with Watch() as watch:
            loaded = runtime.load(folder)
    except Exception as error:
        yield Line(name, "-", "not loaded", f"{type(error).__name__}: {error}"[:200], 0.0, 0)
        return
    for key, signature in loaded.signatures.items():
        proof = watch.of(signature.graph_rows)
        verdict, reason = _verdict(signature.graph_rows)
        yield Line(name, key, verdict, reason, proof.milliseconds, proof.nodes)
    loaded.close()


def _verdict(found: GraphRows | None) -> tuple[str, str]:
    if found is None or not found.outputs:
        return "no rows", "no input has rows"
    output, worst = min(found.outputs.items(), key=lambda each: _ORDER.index(each[1].verdict))
    return worst.verdict, f"output {output!r}: {worst.reason}" if worst.reason else ""


def table(lines: Sequence[Line]) -> str:
    rows = [
        f"| {each.model} | {each.signature} | {each.verdict} | {each.milliseconds:.0f} | {each.nodes} | {each.reason} |"
        for each in lines
    ]
    return "\n".join(["| model | signature | verdict | ms | nodes | reason |", "|---|---|---|---|---|---|", *rows])


def summary(lines: Sequence[Line]) -> str:
    counts = Counter(each.verdict for each in lines)
    proofs = [each.milliseconds for each in lines if each.nodes]
    times = f"; {statistics.median(proofs):.0f} ms in the median, {max(proofs):.0f} at most" if proofs else ""
    return f"{len(lines)} signatures: {', '.join(f'{count} {name}' for name, count in counts.most_common())}{times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--import", nargs="+", default=[], dest="modules", help="modules that register operations")
    parser.add_argument("--json", type=Path, help="file for all lines")
    parser.add_argument("--unknown", type=Path, help="file for the unknown ones alone")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for module in options.modules:
        importlib.import_module(module)
    runtime = create_runtime("tensorflow", RuntimeOptions())
    lines = [line for folder in folders_of(options.folders) for line in lines_of(runtime, folder)]
    print(table(lines))
    print(summary(lines))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in lines], indent=1))
    if options.unknown:
        options.unknown.write_text(table([each for each in lines if each.verdict == "unknown"]) + "\n")


if __name__ == "__main__":
    main()
