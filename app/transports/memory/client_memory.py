"""How much of the memory that a process has for clients is held, by bodies and by replies that are not read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from app.core.errors import NoMemoryLeft, ServingError
from app.core.events import Listener, RequestsRefused, ignore
from app.transports.memory.body_room import BINARY, BodyRoom

#: The part that bodies may take. Chosen.
_MOST_BODIES = 0.75


class ClientMemory:
    """The memory of a process for bodies of requests that are not answered, and for replies that are not read.

    While nothing is held, a body of any size is taken. What is taken is never given up for another request. Bodies that
    never end must not keep out requests that come whole, so they leave a quarter to replies. `listener` is told of each
    rejection.

    Attributes:
        bodies, unread: bytes that are held now, of requests and of replies.
        full: nothing more is taken, since unread replies have that quarter and more.
        room: the room for what bodies become, in a container.
    """

    __slots__ = ("_listener", "bodies", "full", "limit", "room", "unread")

    def __init__(self, limit: float = inf, listener: Listener = ignore, room: BodyRoom | None = None) -> None:
        self._listener = listener
        self.limit = limit
        self.bodies = self.unread = 0
        self.full = False
        self.room = room or BodyRoom()

    def take_body(self, size: int) -> bool:
        """Holds this many bytes more; False if there is no room for them."""
        if (self.bodies and self.bodies + size > _MOST_BODIES * self.limit) or not self.has_room(size):
            return False
        self.bodies += size
        self._look()
        return True

    def give_body(self, size: int) -> None:
        self.bodies -= size
        self._look()

    def change_unread(self, size: int) -> None:
        """This many bytes more of replies wait for their readers; fewer if it is below 0."""
        self.unread += size
        self._look()

    @property
    def half_held(self) -> bool:
        return 2 * (self.bodies + self.unread) >= self.limit

    def rejection(self, cost: float = 0.0, more: float = 0.0) -> ServingError:
        """Why nothing is taken now: of a body that may become `cost`, of which `more` is not reserved."""
        self._listener(RequestsRefused("memory"))
        held = self.bodies + self.unread
        return self.room.rejection(cost, more) or NoMemoryLeft(
            f"Bodies under way and unread replies take {held:,} of {self.limit:,.0f} bytes, so no more is read"
        )

    @contextmanager
    def reserved(self, made: float, size: int) -> Iterator[None]:
        """While a binary body of this size is read: what is made of it, beyond what its size lets expect.

        Raises:
            NoMemoryLeft, BodyOverMemory: there is no room for that.
        """
        beyond = max(0.0, made - BINARY * size)
        more = beyond if beyond and self.room.is_limited() else 0.0
        if not self.room.take(more):
            raise self.rejection(made, more)
        try:
            yield
        finally:
            self.room.give(more)

    def reply_rejection(self, cost: float, held: float = 0.0, what: str = "To compute the outputs") -> ServingError:
        """Why a reply that takes `cost`, beside the outputs that are held, is not made."""
        self._listener(RequestsRefused("memory"))
        return self.room.reply_rejection(cost, held, what)

    def has_room(self, size: int) -> bool:
        """Whether there is room for so many bytes more, of anything; always if nothing is held."""
        held = self.bodies + self.unread
        return not held or held + size <= self.limit

    def _look(self) -> None:
        held = self.bodies + self.unread
        self.full = held >= self.limit and self.unread >= (1 - _MOST_BODIES) * self.limit

    def __repr__(self) -> str:
        return f"<ClientMemory {self.bodies} + {self.unread} of {self.limit:,.0f} bytes>"
