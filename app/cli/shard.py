"""`ferry shard`: a SavedModel whose large dense layers are split over several devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.failures import one_line_failures
from app.cli.models import ModelArgument, ModelsOption, find_version
from app.config.sources import load_settings

if TYPE_CHECKING:
    from app.runtimes.tensorflow.sharding.graph_sharding import SplitLayer


def shard(
    model: ModelArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT_FOLDER", help="Folder to write, such as models/NAME/2; must not exist.")
    ],
    *,
    devices: Annotated[int, typer.Option(min=2, max=64, help="How many devices share the model.")],
    device_kind: Annotated[
        Literal["CPU", "GPU"], typer.Option(help="CPU makes several devices of one CPU, to try it out.")
    ] = "GPU",
    signature: Annotated[
        str, typer.Option(metavar="NAME", help="The signature that is kept and split.")
    ] = "serving_default",
    min_mb: Annotated[
        float, typer.Option(min=0.0, help="Dense layers with fewer megabytes of weights stay whole.")
    ] = 1.0,
    models: ModelsOption = None,
) -> None:
    """Split the large dense layers of a model over several devices, as a new SavedModel.

    The new model is compared with the original on random inputs, and written only if the answers are equal.
    """
    with one_line_failures(ValueError):  # CannotShard, and what TensorFlow says of a folder that it cannot load
        settings = load_settings({} if models is None else {"models": models})
        path = find_version(model, settings.models)
        from app.runtimes.tensorflow.start import preload, without_banner  # noqa: PLC0415 - `ferry --help` needs no TensorFlow

        with without_banner():
            preload()
        from app.runtimes.tensorflow.sharding.shard_model import (  # noqa: PLC0415 - `ferry --help` needs no TensorFlow
            PROOF_TOLERANCE,
            ShardOptions,
            find_devices,
            shard_model,
        )

        found = find_devices(device_kind, devices)
        reach, libraries = tuple(settings.allowed_operations), tuple(settings.operation_libraries)
        layers = shard_model(path, out, ShardOptions(found, signature, min_mb, reach, libraries))
    _show(layers)
    typer.echo(f"Equal to the original within {PROOF_TOLERANCE:g} on random inputs.")
    typer.echo(f"Written to {out}, on {', '.join(found)}.")


def _show(layers: Sequence[SplitLayer]) -> None:
    for layer in layers:
        shape = " x ".join(map(str, layer.shape))
        typer.echo(f"{layer.name}: {shape}, {layer.bytes / 2**20:.1f} MB, by {layer.by}")
