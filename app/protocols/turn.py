"""The inference requests that were read in one turn of the event loop.

Under load many sockets are readable in a turn, and most of what a small request costs is Python's overhead for each.
Where a model is quick enough to be called on the event loop and nothing waits in line, requests with the same head
are therefore read, computed and answered together: one array, one call. Nothing can happen between, so nobody is
overtaken, expires or goes away meanwhile. In every other case, and where one of them is unusual or wrong, they begin
one by one, in the order in which they were read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from app.errors import ServingError
from app.inference import Array, InferenceRequest
from app.protocols.direct_exchange import DirectExchange
from app.protocols.http_exchange import Together
from app.protocols.outbox import Outbox
from app.protocols.request_head import RequestHead

_Arrived = list[tuple[DirectExchange, bytes]]


class Turn:
    """Collects whole requests, and begins them when all sockets that are readable now were read."""

    def __init__(self, outbox: Outbox) -> None:
        self._arrived: _Arrived = []
        self._outbox = outbox

    def add(self, exchange: DirectExchange, body: bytes) -> None:
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._begin)
        self._arrived.append((exchange, body))

    def _begin(self) -> None:
        arrived, self._arrived = self._arrived, []
        if len(arrived) > 1:
            for group in _by_head(arrived):
                with self._outbox.held():
                    _answer_together(group)
        for exchange, body in arrived:
            if not exchange.answered:
                exchange.begin(body)


def _by_head(arrived: _Arrived) -> list[_Arrived]:
    groups: dict[RequestHead, _Arrived] = {}
    for each in arrived:
        if not each[0].answered:  # the client may have gone
            groups.setdefault(each[0].head, []).append(each)
    return [group for group in groups.values() if len(group) > 1]


def _answer_together(group: _Arrived) -> None:
    """As far as that goes: who is not answered then is to begin alone."""
    first = group[0][0]
    together = first.protocol.begin_together(first.head, [body for _, body in group])
    if together is None:
        return
    start = row = 0
    for count in _calls(together.rows, together.model.sizes.largest):
        exchanges = [exchange for exchange, _ in group[start : start + count]]
        rows = together.rows[start : start + count]
        inputs = {name: array[row : row + sum(rows)] for name, array in together.request.inputs.items()}
        _answer(exchanges, rows, together, inputs)
        start, row = start + count, row + sum(rows)


def _calls(rows: Sequence[int], largest: int) -> Iterator[int]:
    """How many of the requests go into each call."""
    count = room = 0
    for each in rows:
        if count and room < each:
            yield count
            count = 0
        room = (room if count else largest) - each
        count += 1
    if count:
        yield count


def _answer(
    exchanges: Sequence[DirectExchange], rows: Sequence[int], together: Together, inputs: dict[str, Array]
) -> None:
    model, signature = together.model, together.request.signature
    try:
        request = InferenceRequest(inputs, signature)
        response = model.infer_at_once(request, [exchange.started_s for exchange in exchanges])
    except ServingError as error:
        for exchange in exchanges:
            exchange.concerns(model, signature)
            exchange.set_exception(type(error)(*error.args))
        return
    if response is None:
        return
    end = 0
    for exchange, count in zip(exchanges, rows, strict=True):
        start, end = end, end + count
        exchange.concerns(model, signature)
        exchange.answer(together, {name: output[start:end] for name, output in response.outputs.items()})
