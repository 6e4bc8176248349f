"""Access: by its credential who a caller is, what it may do, and how much.

Rules (test_access.py)
- Nothing is allowed but what a rule allows: without a file that can be used, nobody is.
- A key is found by its SHA-256, in a table whose hash is keyed by a secret of the process (PEP 456): no byte of a key,
  nor of its SHA-256, is compared with one of another, so the time that it takes tells nothing of any key.
- What was decided for a credential is kept with the heads of requests that carry it (Permit), and decided anew when the
  file or an issuer's keys have changed, or the credential has expired. So a key that was removed ends at once, also on
  connections that are open.
- What lasts longer than a request (streams, over any protocol) asks again at each of its messages, by `Permit.use` as
  requests do: so it ends with its credential, and its messages count for the caller's rate.
- A token is verified once, and then known by its SHA-256 until it expires. One that is not valid is, too: who asks
  first, on the fast path, leaves it to who tells the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from app.access.access_file import AccessFile, digest_of
from app.access.credentials import credential_in
from app.access.rates import Rates
from app.access.rules import Need, Principal
from app.core.bounded_cache import BoundedCache
from app.core.errors import Unauthenticated

#: Verified tokens that are remembered. Chosen: 4 MB. One beyond them is verified again: 30 us with RS256.
_MOST_TOKENS = 8192

#: For which the last token that was not valid is remembered. Chosen: it is asked about again within a turn of the loop,
#: and may become valid with time.
_REJECTED_S = 0.1

_UNKNOWN = "The credential is not valid here"
_EXPIRED = "The credential has expired"

#: Lets go what is kept for each caller whose name a function is true of.
Forget = Callable[[Callable[[str], bool]], None]

#: Verifies a token: who it is of. Raises Unauthenticated, NotAllowed, IssuerUnknown.
Verify = Callable[[bytes], Principal]


class Access:
    """Who may call one process. Used on its event loop.

    Args:
        file: what is allowed; nothing without one.
        verify: verifies a token; None if none is accepted.
        weigh: is told the weights of callers: name, weight.
        forget: lets go what is kept for callers whose names this function is true of.
        clock: monotonic seconds.
        wall_clock: Unix seconds.

    Attributes:
        generation: another number when a decision may have changed.
    """

    def __init__(
        self,
        file: AccessFile | None = None,
        verify: Verify | None = None,
        *,
        rates: Rates | None = None,
        weigh: Callable[[str, float], None] = lambda _, __: None,
        forget: Forget = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.generation = 0
        self._weigh = weigh
        self._forget = forget
        self.clock = clock
        self.wall_clock = wall_clock
        self.rates = rates or Rates()
        self._file = file or AccessFile()
        self._verify = verify
        self._tokens: BoundedCache[bytes, Principal] = BoundedCache(_MOST_TOKENS)
        self._rejected = _Rejected()

    def change(self, file: AccessFile, verify: Verify | None = None) -> None:
        """Decides by this file from now on."""
        before, self._file = self._file, file
        self._verify = verify
        self._forget(file.gone_since(before))
        for each in file.keys.values():
            self._weigh(each.name, each.rules.weight)
        self.renew()

    def renew(self) -> None:
        """Decides anew from now on: keys of issuers have changed."""
        self._tokens.clear()
        self._rejected = _Rejected()
        self.generation += 1

    def permit(self, fields: Iterable[tuple[bytes, bytes]], need: Need) -> Permit:
        """What a request with these fields (names in lower case) may do.

        Raises:
            Unauthenticated, NotAllowed, IssuerUnknown.
        """
        return Permit(self, credential_in(fields), need)

    def principal(self, credential: bytes) -> Principal:
        """Whose it is. Raises Unauthenticated, NotAllowed, IssuerUnknown."""
        digest = digest_of(credential)

        # 1. A key.
        principal = self._file.keys.get(digest)
        if principal is not None:
            return self._not_expired(principal)

        # 2. A token that was verified before.
        verified = self._tokens.get(digest)
        if verified is not None:
            return self._not_expired(verified)

        # 3. A token. It has three parts (RFC 7515, section 3.1); nothing else is verified.
        if self._verify is None or credential.count(b".") != 2:
            raise Unauthenticated(_UNKNOWN)
        if digest == self._rejected.digest and self.clock() < self._rejected.until_s:
            raise Unauthenticated(*self._rejected.why)
        try:
            verified = self._not_expired(self._verify(credential))
        except Unauthenticated as error:
            self._rejected = _Rejected(digest, self.clock() + _REJECTED_S, (str(error), error.denied, error.caller))
            raise
        self._weigh(verified.name, verified.rules.weight)
        return self._tokens.keep(digest, verified)

    def _not_expired(self, principal: Principal) -> Principal:
        if self.expired(principal):
            raise Unauthenticated(_EXPIRED, "expired", principal.name)
        return principal

    def expired(self, principal: Principal) -> bool:
        return principal.expires_s < inf and self.wall_clock() >= principal.expires_s

    def __repr__(self) -> str:
        return f"<Access {len(self._file.keys)} keys, {len(self._file.issuers)} issuers>"


class _Rejected(NamedTuple):
    """A token that was not valid: its SHA-256, until when this counts (monotonic seconds), and what the error tells."""

    digest: bytes = b""
    until_s: float = 0.0
    why: tuple[str, str, str] = ("", "", "")


class Permit:
    """What one credential may do in requests of one kind. Requests with equal heads share it.

    Attributes:
        principal: whose it is.
    """

    __slots__ = ("_access", "_credential", "_generation", "_need", "principal")

    def __init__(self, access: Access, credential: bytes, need: Need) -> None:
        self._access = access
        self._credential = credential
        self._need = need
        self._decide()

    def _decide(self) -> None:
        access = self._access
        self.principal = access.principal(self._credential)
        self.principal.check(self._need)
        self._generation = access.generation

    def allows(self, model: str) -> bool:
        """May it use a model that its request does not name, such as one of a list?"""
        return self.principal.rules.allow_model(model)

    @property
    def models(self) -> tuple[str, ...]:
        """Patterns of the names of those that `allows` allows."""
        return self.principal.rules.models

    def check_every_model(self) -> None:
        """Checks what concerns all models. Raises NotAllowed."""
        self.principal.check(Need(None, every_model=True))

    def check_model(self, model: str) -> None:
        """Checks a model that only the message names. Raises NotAllowed."""
        self.principal.check_model(model)

    def renew(self) -> None:
        """Decides anew where credentials may have changed. Raises Unauthenticated, NotAllowed, IssuerUnknown."""
        access, principal = self._access, self.principal
        if self._generation != access.generation or (principal.expires_s < inf and access.expired(principal)):
            self._generation = -1  # if this raises, the next one is decided, too
            self._decide()

    def use(self) -> None:
        """Counts a request, or a message of a stream.

        Raises:
            Unauthenticated, NotAllowed, IssuerUnknown, RateExceeded.
        """
        self.renew()
        access, principal = self._access, self.principal
        if principal.rules.rate < inf:
            access.rates.take(principal, access.clock())

    def __repr__(self) -> str:
        return f"<Permit {self.principal.name}>"
