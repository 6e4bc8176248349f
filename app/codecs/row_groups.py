"""Rows that differ in shape, by their shapes."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.inference import Array

#: The inputs of a group, name -> [rows, ...], with the places of its rows in the request.
RowGroup = tuple[Sequence[int], dict[str, Array]]
