"""The room of the queue: how many rows and bytes may wait, by model and by caller. No I/O, no clock.

Rules (test_room.py, tests/laws/test_room.py)
- A request takes as much room as it has rows, or, if that is more, a row for each `row_bytes` of its tensors. So the
  requests beside one large request have `max_rows` rows and `max_bytes` bytes at most, and the rules below hold for
  both.
- A request that is larger than the free room of its model is accepted while less than half of that room is taken, and
  takes half of it. So there is one such request at a time, and light traffic never keeps it out. Requests that come
  meanwhile are computed between its parts, and find room in the other half.
- Half of the queue is kept for the models that are served, for each by its weight; the other half is for all. So a
  model that has fewer rows waiting than are kept for it is never rejected for lack of room, whatever other models do.
- Where one model is served, nothing is kept: it may fill the queue.
- While a request waits, bulk requests may use half of the queue at most; an empty queue takes one of any size.
- With fairness among callers a caller may have as many rows waiting as are free. So the free room is always about as
  large as the room of any caller, and a caller without waiting requests finds room, however much other callers send. A
  request that is larger than the room takes a quarter of it, not half, since that quarter is all that its caller may
  have; a step takes no more, either. So further requests of its caller find room beside it.
- An accepted request is never given up for another one. A step of a larger request that was accepted waits in any case.
  If it needs more room than is free, it takes half of that, as a large request does; the rest stays free.
Each question and each change takes the same time however many models there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf

from app.core.errors import Overloaded


class _ModelRoom:
    """The room of one model: the rows that it takes, those that are kept for it, and how many of these are unused."""

    __slots__ = ("kept", "rows", "unused", "versions")

    def __init__(self) -> None:
        self.rows = self.kept = self.unused = self.versions = 0


class Room:
    """The room for `max_rows` rows, and for `max_bytes` bytes of their tensors.

    Args:
        max_rows: 0 if only bytes count. Then each byte counts as a row.
        weights: of models, by name; a model without one counts as 1.

    Attributes:
        rows: the room that is taken, in rows.
    """

    def __init__(self, max_rows: int, weights: Mapping[str, float], max_bytes: float = inf) -> None:
        self.max_rows = max_rows or int(max_bytes)
        self.row_bytes = max_bytes / self.max_rows
        self._unit = "rows" if max_rows else "bytes"
        self.rows = 0
        self._bulk_rows = self.max_rows // 2
        self._weights = dict(weights)
        self._models: dict[str, _ModelRoom] = {}
        self._kept = 0  # for all models
        self._unused = 0  # of these
        self._callers: dict[str, int] = {}  # the rows of each

    # --- which models are served ---

    def add_version(self, model: str) -> None:
        """A version of the model is served from now on."""
        self._models.setdefault(model, _ModelRoom()).versions += 1
        self._share_out()

    def remove_version(self, model: str) -> None:
        """A version that was added is not served any more."""
        model_room = self._models.get(model)
        if model_room is not None and model_room.versions:
            model_room.versions -= 1
            if not (model_room.rows or model_room.versions):
                del self._models[model]
            self._share_out()

    def serves(self, model: str) -> bool:
        """Whether a version of the model is served."""
        model_room = self._models.get(model)
        return model_room is not None and model_room.versions > 0

    def set_weight(self, model: str, weight: float) -> None:
        """Sets the weight of a model; 0 removes it."""
        self._weights.pop(model, None)
        if weight:
            self._weights[model] = weight
        self._share_out()

    def _share_out(self) -> None:
        served = {name: self._weights.get(name, 1.0) for name, room in self._models.items() if room.versions}
        rows = self.max_rows // 2 if len(served) > 1 else 0
        all_weights = sum(served.values())
        for name, room in self._models.items():
            room.kept = int(rows * served[name] / all_weights) if name in served else 0
            room.unused = max(0, room.kept - room.rows)
        self._kept = sum([room.kept for room in self._models.values()])
        self._unused = sum([room.unused for room in self._models.values()])

    # --- which requests wait ---

    def kept(self, model: str) -> int:
        """The rows that are kept for the model."""
        model_room = self._models.get(model)
        return model_room.kept if model_room is not None else 0

    def needed(self, rows: int, tensor_bytes: int) -> int:
        """The room that a request takes, in rows. `rows` is at least 1."""
        return rows if tensor_bytes <= rows * self.row_bytes else ceil(tensor_bytes / self.row_bytes)

    def check(self, model: str, rows: int, *, bulk: bool, caller: str | None = None) -> int:
        """The room that a request is to take, in rows, by its model, and by its caller if callers are told apart.

        `rows` is what `needed` says. Raises Overloaded if there is no room for it.
        """
        # 1. It fits by any rule.
        if caller is None and self.rows + self._unused + rows <= self._bulk_rows:
            return rows

        # 2. The room kept for its model, and the rest of the half for all: a large request may have taken more.
        model_room = self._models.get(model)
        free, most = self._free(model_room), self.max_rows
        if bulk and self.rows:
            most = self._bulk_rows
            free = min(free, most - self.rows)

        # 3. A request that is larger than that takes a share of the room, if others have taken less.
        if rows > free:
            room = self.max_rows - self._kept + (model_room.kept if model_room is not None else 0)
            share = _taken_by_a_large_one(room, caller)
            if room - free < share and most == self.max_rows:
                return share
            kept = self._unused - (model_room.unused if model_room is not None else 0)
            others = f", {kept} are kept for other models" if kept else ""
            raise Overloaded(
                f"The queue is full: {self.rows} of {most} {self._unit} wait{others}, {rows} more do not fit"
                + (f" (each {self.row_bytes:,.0f} bytes count as a row)" if 1 < self.row_bytes < inf else "")
            )

        # 4. A caller may have as many rows as it leaves free.
        if caller is not None and free < (own_rows := self._callers.get(caller, 0)) + rows:
            raise Overloaded(
                f"The queue is full for this caller: {own_rows} of its {self._unit} wait, {free} are left for all "
                f"callers, {rows} more do not fit"
            )
        return rows

    def share(self, model: str, rows: int, caller: str | None = None) -> int:
        """The room that a step of an accepted request is to take, in rows; it waits in any case."""
        if caller is None and self.rows + self._unused + rows <= self._bulk_rows:
            return rows
        free = self._free(self._models.get(model))
        if caller is not None:
            return min(rows, _taken_by_a_large_one(free, caller))
        return rows if rows <= free else _taken_by_a_large_one(free, caller)

    def _free(self, model_room: _ModelRoom | None) -> int:
        unused = model_room.unused if model_room is not None else 0
        return unused + max(0, self.max_rows - self.rows - self._unused)

    def add(self, model: str, rows: int, caller: str | None = None) -> None:
        """The model and the caller take `rows` rows of room, or give them back if `rows` is below 0."""
        if caller is not None:
            self._callers[caller] = self._callers.get(caller, 0) + rows
            if not self._callers[caller]:
                del self._callers[caller]
        model_room = self._models.get(model) or self._models.setdefault(model, _ModelRoom())
        model_room.rows += rows
        self.rows += rows
        if model_room.kept:
            unused = max(0, model_room.kept - model_room.rows)
            self._unused += unused - model_room.unused
            model_room.unused = unused
        if not (model_room.rows or model_room.versions):
            del self._models[model]

    def __repr__(self) -> str:
        models = ", ".join(f"{name}: {room.rows}, {room.kept} kept" for name, room in self._models.items())
        return f"<Room {self.rows}/{self.max_rows} {self._unit} ({models})>"


def _taken_by_a_large_one(free: int, caller: str | None) -> int:
    """The room that a request takes which is larger than the free room, in rows."""
    return (free + 1) // 2 if caller is None else (free + 3) // 4
