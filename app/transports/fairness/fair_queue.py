"""A fair queue: peers take turns, then the connections of a peer; each connection's items stay in order.

A connection that begins to wait is fresh; once an item of it was taken it is served. A peer's fresh and served
connections alternate. So a client with little to do does not wait behind hundreds with much, and these do not wait for
a flood of new connections. (In FQ-CoDel, RFC 8290, section 4.1, new flows go first.)

A peer or a connection without waiting items is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Share:
    """A connection, as fair queues and turns tell connections apart. `peer`: its client's address."""

    __slots__ = ("closed", "peer")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.closed = False

    def __repr__(self) -> str:
        return f"<Share of {self.peer or 'a local client'}{', closed' if self.closed else ''}>"


class _Line(Generic[Item]):
    """The connections of one peer that have waiting items."""

    __slots__ = ("fresh", "fresh_next", "items", "served")

    def __init__(self) -> None:
        self.items: dict[Share, deque[Item]] = {}
        # In order, and any of them is taken out at once.
        self.fresh: OrderedDict[Share, None] = OrderedDict()  # have had nothing since they wait
        self.served: OrderedDict[Share, None] = OrderedDict()
        self.fresh_next = True

    def _next(self) -> OrderedDict[Share, None]:
        """The order, fresh or served, whose first connection is next."""
        first, other = (self.fresh, self.served) if self.fresh_next else (self.served, self.fresh)
        return first or other

    def first(self) -> Item:
        return self.items[next(iter(self._next()))][0]

    def take(self) -> tuple[Share, Item]:
        # 1. Whose turn it is.
        share, _ = self._next().popitem(last=False)
        self.fresh_next = not self.fresh_next

        # 2. Its first item.
        items = self.items[share]
        item = items.popleft()
        if items:
            self.served[share] = None
        else:
            del self.items[share]
        return share, item

    def drop(self, share: Share) -> Iterator[Item]:
        yield from self.items.pop(share)
        del (self.fresh if share in self.fresh else self.served)[share]


class FairQueue(Generic[Item]):
    """Items of connections.

    Attributes:
        peers: the peers that have waiting items, each with its connections; the next peer is first.
    """

    def __init__(self) -> None:
        self.peers: dict[str, _Line[Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, share: Share) -> bool:
        """Does anything of the connection wait?"""
        line = self.peers.get(share.peer)
        return line is not None and share in line.items

    def others(self, share: Share) -> bool:
        """Do other connections of its peer wait?"""
        line = self.peers.get(share.peer)
        return line is not None and len(line.items) > (share in line.items)

    def add(self, share: Share, item: Item, *, first: bool = False, served: bool = False) -> None:
        """Adds an item behind those of its connection, or, with `first`, before them.

        `served`: the connection has just had its turn, and is not fresh.
        """
        line = self.peers.get(share.peer)
        if line is None:
            line = self.peers[share.peer] = _Line()
        items = line.items.get(share)
        if items is None:
            items = line.items[share] = deque()
            (line.served if served else line.fresh)[share] = None
        if first:
            items.appendleft(item)
        else:
            items.append(item)
        self._count += 1

    def take(self) -> tuple[Share, Item]:
        """Takes the next item; its peer goes behind the others. Raises StopIteration if the queue is empty."""
        peer = next(iter(self.peers))
        taken = self.take_of(peer)
        if (line := self.peers.pop(peer, None)) is not None:
            self.peers[peer] = line
        return taken

    def take_of(self, peer: str) -> tuple[Share, Item]:
        """Takes the next item of this peer. Raises KeyError if it has none."""
        line = self.peers[peer]
        taken = line.take()
        self._count -= 1
        if not line.items:
            del self.peers[peer]
        return taken

    def first_of(self, peer: str) -> Item:
        """The item that `take_of` would take."""
        return self.peers[peer].first()

    def drop(self, share: Share) -> list[Item]:
        """Takes out all that waits of a connection."""
        if share not in self:
            return []
        line = self.peers[share.peer]
        dropped = list(line.drop(share))
        self._count -= len(dropped)
        if not line.items:
            del self.peers[share.peer]
        return dropped

    def __repr__(self) -> str:
        return f"<FairQueue {self._count} items of {len(self.peers)} peers>"
