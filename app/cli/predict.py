"""`ferry predict`: one call of a model, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.failures import one_line_failures
from app.cli.models import ModelArgument, ModelsOption, opened_model


def predict(
    model: ModelArgument,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help='JSON as in POST ...:predict ({"instances": ...} or {"inputs": ...}), .npy or .npz; - reads stdin.',
        ),
    ],
    signature: Annotated[
        str, typer.Option("--signature", metavar="NAME", help="Signature to call. [serving_default]")
    ] = "",
    models: ModelsOption = None,
) -> None:
    """Run a model on a file of inputs and print its answer as JSON."""
    with one_line_failures():
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        with opened_model(model, models) as opened:
            from app.codecs.input_files import read_inputs  # noqa: PLC0415 - numpy
            from app.codecs.json.predict_documents import encode_predict  # noqa: PLC0415 - numpy

            found, inputs, by_row = read_inputs(body, opened.model.signatures, signature)
            outputs = opened.model.run(found.name, inputs, ())
            answer = encode_predict(outputs, by_row, ragged=found.ragged_outputs)
        typer.echo(answer)
