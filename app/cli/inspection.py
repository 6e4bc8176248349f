"""`ferry inspect`: the inputs and outputs of a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.cli.failures import one_line_failures
from app.cli.models import ModelArgument, ModelsOption, opened_model

if TYPE_CHECKING:
    from rich.table import Table

    from app.core.inference import ModelSignature

_COLUMNS = ("signature", "method", "", "name", "dtype", "shape", "batchable")
_WIDTH_IN_A_PIPE = 200


def inspect(model: ModelArgument, models: ModelsOption = None) -> None:
    """Show the signatures of a model as a table."""
    with one_line_failures(), opened_model(model, models) as opened:
        from rich.console import Console  # noqa: PLC0415 - slow to import

        console = Console(width=None if sys.stdout.isatty() else _WIDTH_IN_A_PIPE, markup=False, highlight=False)
        console.print(str(opened.path))
        console.print(_table(list(opened.model.signatures.values())))


def _table(signatures: list[ModelSignature]) -> Table:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415 - slow to import
    from rich.text import Text  # noqa: PLC0415 - slow to import

    table = Table(box=SIMPLE_HEAD)
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for signature in signatures:
        for row in _rows(signature):
            table.add_row(*map(Text, row))
        table.add_section()
    return table


def _rows(signature: ModelSignature) -> Iterator[tuple[str, ...]]:
    from app.core.inference import dtype_name, format_shape  # noqa: PLC0415 - numpy

    titles = (signature.name, signature.method_name)
    batchable = "yes" if signature.shares_calls else "no"
    for direction, specs in (("in", signature.inputs), ("out", signature.outputs)):
        for spec in specs.values():
            yield (*titles, direction, spec.name, dtype_name(spec.dtype), format_shape(spec.shape), batchable)
            titles, batchable = ("", ""), ""
