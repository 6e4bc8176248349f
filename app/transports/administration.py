"""Who may change what is served: load, unload and reload models, change batching options, register shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.core.errors import Forbidden
from app.transports.http.asgi import Header

_SWITCHED_OFF = "Administration is switched off; the setting model_control=explicit lets callers change what is served"


@dataclass(frozen=True, slots=True)
class Administration:
    """The rule of one server. Methods raise Forbidden.

    Attributes:
        allowed: callers may administer at all.
        port: the one HTTP port where they may; 0 is any, and gRPC, too.
    """

    allowed: bool = False
    port: int = 0

    @classmethod
    def of(cls, model_control: str, admin_port: int) -> Administration:
        """The rule that the settings of these names make."""
        return cls(model_control == "explicit", admin_port)

    def check_grpc(self) -> None:
        self._check_allowed()
        if self.port:
            raise Forbidden(f"Administration is answered over HTTP on port {self.port} only (setting admin_port)")

    def check_http(self, headers: Iterable[Header], port: int) -> None:
        """Checks a request that came to `port`. Browsers send one for any page that their user looks at."""
        self._check_allowed()
        if self.port not in (0, port):
            raise Forbidden(f"Administration is answered on port {self.port} only (setting admin_port)")
        if _from_another_site(dict(headers)):
            raise Forbidden(
                "A web page of another site asked for this (Sec-Fetch-Site, Origin); administration is not for it"
            )

    def _check_allowed(self) -> None:
        if not self.allowed:
            raise Forbidden(_SWITCHED_OFF)


def _from_another_site(headers: dict[bytes, bytes]) -> bool:
    """By what browsers say and scripts cannot change."""
    # 1. Sec-Fetch-Site, which also holds behind a proxy that changes Host.
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site not in (b"same-origin", b"none")

    # 2. Origin: older browsers, and those that came over plain HTTP, send it alone.
    return origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()
