"""`ferry predict`: one call of a model, without a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.failures import one_line_failures
from app.cli.models import ModelArgument, ModelsOption, loaded_model
from app.core.errors import SignatureNotFound

if TYPE_CHECKING:
    from app.core.inference import ModelSignature
    from app.runtime import LoadedModel


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
        with loaded_model(model, models) as (_, loaded):
            answer = _answer(loaded, body, signature)
        typer.echo(answer)


def _answer(loaded: LoadedModel, body: bytes, name: str) -> bytes:
    from app.cli.input_files import is_numpy_file, read_numpy_file  # noqa: PLC0415 - numpy
    from app.codecs.json.parsing import parse  # noqa: PLC0415 - orjson
    from app.codecs.json.predict_documents import decode_predict, encode_predict, signature_name  # noqa: PLC0415 - numpy
    from app.core.validation import check_inputs  # noqa: PLC0415 - numpy

    if is_numpy_file(body):
        signature = _find(loaded.signatures, name or "serving_default")
        inputs, by_row = read_numpy_file(body, signature), signature.batchable
    else:
        document = parse(body)
        signature = _find(loaded.signatures, name or signature_name(document))
        inputs, by_row = decode_predict(document, signature)
    check_inputs(signature, inputs)
    return encode_predict(loaded.run(signature.name, inputs, ()), by_row)


def _find(signatures: Mapping[str, ModelSignature], name: str) -> ModelSignature:
    if name not in signatures:
        raise SignatureNotFound(f"The model has no signature {name!r}; it has {', '.join(signatures)}")
    return signatures[name]
