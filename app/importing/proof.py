"""The proof of an import: its source and its export give the same answers, the export as a server runs it.

1. The export is loaded by Ferry's own runtime, with its check of operations.
2. Both get the same inputs: the caller's samples, then made-up values of several kinds, rows and sizes.
3. Names, types, shapes and values must be equal (differences.py). A model that draws random numbers cannot be compared
   by values.
4. Inputs that the source rejects prove nothing. Without one that it accepts there is no import.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.codecs.input_files import read_inputs
from app.config.sources import load_settings
from app.core.agreement import moved_inputs
from app.core.errors import ServingError
from app.core.inference import DEFAULT_SIGNATURE, Array, ModelSignature
from app.core.values.sample_inputs import SEED, zero_inputs
from app.importing.differences import compare, same_structure
from app.importing.example import document_of, zeros_like
from app.importing.made_inputs import made_inputs
from app.importing.order import CannotImport, ImportOrder
from app.importing.result import ImportResult
from app.importing.source import Endpoint, Source
from app.runtime import LoadedModel, hints_of
from app.runtimes.by_files import RuntimesByFiles
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.error_mapping import model_name as served_name
from app.server.engine import runtime_options

#: Seconds of made-up calls for each signature, once some were accepted. Chosen.
_SECONDS = 8.0

#: Calls that are accepted are enough at so many. Chosen.
_ENOUGH = 24

#: Calls of each signature that are kept without samples. Chosen.
_KEPT = 3


class Call(NamedTuple):
    """A call whose answers were equal; `outputs` are the source's."""

    signature: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


class Proven(NamedTuple):
    """An import that was proven: its result, and calls for the version's golden and warm-up requests.

    calls: of each signature, the caller's samples if there are some, else the first calls.
    signatures: those of the export.
    """

    result: ImportResult
    calls: list[Call]
    signatures: Mapping[str, ModelSignature]


class Proof:
    """The runtime of a server, in which exports are loaded and called."""

    def __init__(self) -> None:
        settings = load_settings({})
        self._runtime = RuntimesByFiles(settings.runtime, runtime_options(settings))

    def of(self, source: Source, version: Path, order: ImportOrder) -> Proven:
        """Compares a source with its export in folder `version`. Raises CannotImport: they differ."""
        try:
            model = self._runtime.load(version)
        except ServingError as error:
            reason = str(error).removeprefix(f"{served_name(version)} cannot be loaded: ")
            raise CannotImport(f"the import cannot be served: {reason}") from None
        with closing(model):
            signatures = model.signatures
            if missing := sorted({each.name for each in source.endpoints} - signatures.keys()):
                raise CannotImport(f"signature {missing[0]!r} cannot be served")
            calls = [_Signature(each, signatures[each.name], model) for each in source.endpoints]
            samples = _samples(order, signatures)
            for each in calls:
                each.prove(samples.get(each.name))
            main = signatures.get(DEFAULT_SIGNATURE) or next(iter(signatures.values()))
            result = ImportResult(
                source.format,
                {name: str(spec) for name, spec in main.inputs.items()},
                {name: str(spec) for name, spec in main.outputs.items()},
                sorted(signatures),
                sum(each.calls for each in calls),
                max((each.difference for each in calls), default=0.0),
                next((json.dumps(each.example) for each in calls if each.name == main.name and each.example), ""),
                [*source.notes, *(note for each in calls for note in each.notes)],
            )
            return Proven(result, [call for each in calls for call in each.kept], signatures)


def _samples(order: ImportOrder, signatures: Mapping[str, ModelSignature]) -> dict[str, Mapping[str, Array]]:
    """The caller's inputs by signature. Raises CannotImport: they do not fit."""
    if not order.samples:
        return {}
    try:
        signature, inputs, _ = read_inputs(Path(order.samples).read_bytes(), signatures)
    except (ServingError, OSError) as error:
        raise CannotImport(f"--samples {order.samples}: {error}") from None
    return {signature.name: inputs}


class _Signature:
    """One signature, which is called beside its endpoint.

    calls: the number of calls whose answers were equal.
    difference: the largest difference of these.
    notes: remarks on the proof.
    kept: calls for the version's golden and warm-up requests.
    example: a predict document that the model answers; None if none is known.
    """

    def __init__(self, endpoint: Endpoint, signature: ModelSignature, model: LoadedModel) -> None:
        self.name = signature.name
        self.calls = 0
        self.difference = 0.0
        self.notes: list[str] = []
        self.kept: list[Call] = []
        self.example: Mapping[str, Any] | None = None
        self._endpoint = endpoint
        self._signature = signature
        self._model = model
        self._rejection = ""
        self._has_values = False
        if signature.draws:
            self.notes.append(f"signature {self.name!r} draws random numbers: names, types and shapes were compared")

    def prove(self, samples: Mapping[str, Array] | None) -> None:
        """Calls both with the samples, and with made-up inputs. Raises CannotImport: they differ."""
        if samples is not None and not self._call(samples, keep=True):
            raise CannotImport(f"--samples: the source rejects these inputs: {self._rejection}")
        begun = time.monotonic()
        for inputs in made_inputs(self._signature, hints_of(self._model, self.name), self._endpoint.usual):
            self._call(inputs, keep=samples is None and len(self.kept) < _KEPT)
            if self.calls >= _ENOUGH or (self.calls and time.monotonic() - begun > _SECONDS):
                break
        if not self.calls:
            raise CannotImport(
                f"nothing could be proven of signature {self.name!r}: the source rejects all made-up inputs "
                f"({self._rejection}); --samples FILE gives inputs that it accepts"
            )
        if not self._has_values:
            raise CannotImport(
                f"nothing could be proven of signature {self.name!r}: all that its source answers is NaN or infinite; "
                "--samples FILE gives inputs that it answers"
            )
        self.example = self._example()

    def _example(self) -> Mapping[str, Any] | None:
        """A predict document that the model answers: of zeros, which are short to write, or of the first call."""
        if self._signature.ragged or self._signature.sparse or not self.kept:
            return None
        first = self.kept[0].inputs
        for inputs in (zero_inputs(self._signature, 1), zeros_like(first)):
            if self._call(inputs, keep=False):
                return document_of(self._signature, inputs)
        return document_of(self._signature, first)

    def _call(self, inputs: Mapping[str, Array], *, keep: bool) -> bool:
        """Calls both. Returns whether the source accepts the inputs. Raises CannotImport: the answers differ."""
        try:
            expected = self._endpoint.run(inputs)
        except MemoryError:
            raise
        except Exception as error:  # whatever the source's library raises
            self._rejection = first_meaningful_line(error)
            return False
        shapes = _shapes(inputs)
        try:
            actual = self._model.run(self.name, inputs, ())
        except ServingError as error:
            raise CannotImport(f"the import rejects inputs that the source answers ({shapes}): {error}") from None
        expected = {name: np.asarray(value) for name, value in expected.items()}
        if self._signature.draws:
            comparison = same_structure(expected, actual)
        else:
            comparison = compare(expected, actual)
            if comparison.fault and not self._signature.writes:
                comparison = compare(expected, actual, self._moved(inputs))
        if comparison.fault:
            raise CannotImport(f"the import does not answer as the source: {comparison.fault} ({shapes})")
        if keep:
            self.kept.append(Call(self.name, dict(inputs), expected))
        self.calls += 1
        self._has_values = self._has_values or any(map(_has_a_value, expected.values()))
        self.difference = max(self.difference, comparison.difference)
        return True

    def _moved(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        others = moved_inputs(inputs, np.random.default_rng(SEED))
        if all(np.array_equal(values, inputs[name]) for name, values in others.items()):  # zeros have no last digit
            others = {name: _above_zero(values) for name, values in others.items()}
        moved = self._endpoint.run(others)
        return {name: np.asarray(value) for name, value in moved.items()}


def _above_zero(values: Array) -> Array:
    """Zeros as the last digit of one."""
    return values + np.finfo(values.dtype).eps if values.dtype.kind == "f" else values


def _has_a_value(values: Array) -> bool:
    """Whether anything in an output shows how it was computed: NaN and infinity do not. An empty one counts."""
    return values.dtype.kind not in "fc" or not values.size or bool(np.isfinite(values).any())


def _shapes(inputs: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} of shape {list(array.shape)}" for name, array in inputs.items())
