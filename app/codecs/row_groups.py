"""Groups of rows of equal shape, of a request whose rows differ in shape."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.inference import Array

#: The inputs of a group, name -> [rows, ...], with the places of its rows in the request.
RowGroup = tuple[Sequence[int], dict[str, Array]]
