"""Measures what calls of a model cost on this machine, as `ferry plan` needs it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from app.cli.models import opened_model
from app.codecs.input_files import find_signature, read_inputs
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array, ModelSignature
from app.core.values.sample_inputs import zero_inputs
from app.planning.measured_curve import NAME, CannotPlan, MeasuredCurve, is_name, measure


def measured_curve(
    model: str, models: Path | None, signature: str, machine: str = "", sample: Path | None = None
) -> MeasuredCurve:
    """The curve at the batch sizes of the settings.

    Args:
        machine: the name of this kind of machine; empty: cpu or gpu.
        sample: the file of a request whose first row is computed; None for zeros.

    Raises:
        CannotPlan: the model cannot be measured; the text says why.
        ServingError, SettingsError, OSError: as `opened_model` and `read_inputs`.
    """
    if machine and not is_name(machine):
        raise CannotPlan(f"machine is {machine[:80]!r}, but should be {NAME}")
    body = None if sample is None else sample.read_bytes()
    with opened_model(model, models) as opened:
        found = find_signature(opened.model.signatures, signature)
        sizes = BatchSizes.of(opened.settings.max_batch_size, opened.settings.batch_sizes).allowed
        inputs = _inputs(found, sizes, body)
        devices = opened.runtime.devices
        slots = len(devices) * opened.runtime.batches_in_flight  # calls that a server makes at the same time
        run = opened.model.run
        seconds, spread = measure(lambda rows: run(signature, inputs[rows], ()), sizes, slots, _tell_size)
        machine = machine or ("gpu" if any("GPU" in each for each in devices) else "cpu")
        return MeasuredCurve(machine, opened.path.parent.name, signature, seconds, slots, spread)


def _inputs(signature: ModelSignature, sizes: Sequence[int], body: bytes | None) -> Mapping[int, dict[str, Array]]:
    """The inputs of a call by its rows: the first row of the request, repeated, or zeros."""
    # 1. Signatures without rows that could be repeated.
    if not signature.shares_calls:
        raise CannotPlan(
            f"signature {signature.name!r} has no rows that could share calls: there is nothing to plan with"
        )
    if signature.ragged or signature.sparse:
        raise CannotPlan(f"signature {signature.name!r} has ragged or sparse inputs: expected dense ones")

    # 2. A request.
    if body is not None:
        _, given, _ = read_inputs(body, {signature.name: signature}, signature.name)
        shared = signature.shared
        if not all(len(array) for name, array in given.items() if name not in shared):
            raise CannotPlan("the request of --input has no rows: expected at least one")
        return {
            rows: {name: array if name in shared else array[:1].repeat(rows, 0) for name, array in given.items()}
            for rows in sizes
        }

    # 3. Zeros, if there is one shape that they can have.
    if not signature.fixed_inner_shapes:
        raise CannotPlan(
            f"signature {signature.name!r} has inputs of free shape, and calls cost what that is: expected --input "
            "with a request of the usual shape"
        )
    return {rows: zero_inputs(signature, rows) for rows in sizes}


def _tell_size(rows: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\rmeasuring calls of {rows} rows ", nl=False, err=True)
