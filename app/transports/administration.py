"""The rule for changes to the server: load, unload and reload models, tune batching, register shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from app.config.settings import Settings
from app.core.errors import Forbidden
from app.transports.http.asgi import Header

_SWITCHED_OFF = "Administration is switched off; the setting model_control=explicit lets callers change what is served"


@dataclass(frozen=True, slots=True)
class Administration:
    """The rule of one server. Methods raise Forbidden.

    Attributes:
        allowed: callers may administer at all.
        hosts: names of this server, beside addresses and names without a dot, that web pages may come from.
    """

    allowed: bool = False
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> Administration:
        """The rule that these settings make."""
        hosts = frozenset(name.lower() for name in settings.admin_hosts)
        return cls(settings.model_control == "explicit", hosts)

    def check_grpc(self) -> None:
        if not self.allowed:
            raise Forbidden(_SWITCHED_OFF)

    def check_http(self, headers: Iterable[Header]) -> None:
        """Checks the headers of a request. A browser sends one for any page that its user looks at."""
        # 1. The setting.
        if not self.allowed:
            raise Forbidden(_SWITCHED_OFF)

        # 2. The web page that sent it, if one did.
        read = dict(headers)
        if _from_another_site(read):
            raise Forbidden(
                "A web page of another site asked for this (Sec-Fetch-Site, Origin); administration is not for it"
            )
        name = _name_of_page(read)
        if not (_is_nobody_elses(name) or name in self.hosts):
            raise Forbidden(
                f"A web page of {name[:64]!r} asked for this, and whoever owns a name can make it mean this server; "
                "administration is for pages of names in the setting admin_hosts, of addresses and of https"
            )


def _from_another_site(headers: dict[bytes, bytes]) -> bool:
    """Whether a browser sends the request for a page of another site, by headers that scripts cannot change."""
    # 1. Sec-Fetch-Site, which also holds behind a proxy that changes Host.
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site not in (b"same-origin", b"none")

    # 2. Origin: older browsers, and those that came over plain HTTP, send it alone.
    return origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()


def _name_of_page(headers: dict[bytes, bytes]) -> str:
    """The host name of the web page that sent this; empty: none did, or its certificate proves the name."""
    # 1. Every browser says the origin of a page that changes something.
    origin = headers.get(b"origin")
    if origin is not None:
        scheme, _, host = origin.decode("latin-1").lower().partition("://")
        return "" if scheme == "https" else _without_port(host)

    # 2. A request with neither header is not from a browser.
    return _without_port(headers.get(b"host", b"").decode("latin-1").lower()) if b"sec-fetch-site" in headers else ""


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_nobody_elses(name: str) -> bool:
    """Is this an address, or a name that cannot be bought: without a dot, or of the loopback interface (RFC 6761, 6.3)?

    Any other name may mean an address of its owner's now, and this server's a second later (DNS rebinding).
    """
    if "." not in name.rstrip("."):
        return True
    if name.rstrip(".").endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
