"""The caller of a request, for fairness: its address, or a header (in gRPC: metadata) that names it. A caller that has
proven its name by a key or a token (app/access/) goes by that name instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: More of a name is not looked at, so that what waits takes no memory of a caller's choice. Chosen.
_MAX_BYTES = 256


@dataclass(frozen=True, slots=True)
class CallerRule:
    """Callers are told apart by this header (in lower case) and, where a request has none, by its address."""

    header: bytes = b""

    @classmethod
    def of(cls, setting: str) -> CallerRule | None:
        """The rule of the setting fair_callers (`key`, `address`, `header:NAME`); None if it is empty."""
        return cls(setting.partition(":")[2].lower().encode()) if setting else None

    def caller(self, header: Callable[[bytes], bytes | None], address: str) -> str:
        """The caller of a request.

        Args:
            header: gives the value of a header of the request.
            address: the client's, without the port.
        """
        name = header(self.header) if self.header else None
        return address if name is None else f"{self.header.decode()}: {name[:_MAX_BYTES].decode('latin-1')}"
