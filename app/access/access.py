"""Access: the identity, the permissions and the rate of a caller, by its credential.

Rules (test_access.py)
- Only what a rule allows is allowed: without a usable file no caller is let in.
- A key is found by its SHA-256, in a table whose hash is keyed by a secret of the process (PEP 456): no byte of a key,
  nor of its SHA-256, is compared with another's, so the time of a look-up tells nothing of any key.
- The decision for a credential (Permit) is kept with the heads of requests that carry it, and made anew when the file
  or an issuer's keys have changed, or the credential has expired. So a removed key ends at once, also on open
  connections.
- A stream, over any protocol, asks again at each message, by `Permit.use` as requests do: it ends with its credential,
  and its messages count for the caller's rate.
- A token is verified once, and then known by its SHA-256 until it expires. An invalid token is remembered for a moment:
  the fast path asks first, and the ordinary path asks again to tell the caller.
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

#: The most verified tokens that are remembered. Chosen: 4 MB. A forgotten token is verified again: 30 us with RS256.
_MOST_TOKENS = 8192

#: The seconds for which the last invalid token is remembered. Chosen: the ordinary path asks within a turn of the loop,
#: and a token may become valid with time.
_REJECTED_S = 0.1

_UNKNOWN = "The credential is not valid here"
_EXPIRED = "The credential has expired"

#: Lets go of everything kept for callers that have gone, given a function that says so of a caller's name.
Forget = Callable[[Callable[[str], bool]], None]

#: Verifies a token, and finds its principal. Raises Unauthenticated, NotAllowed, IssuerUnknown.
Verify = Callable[[bytes], Principal]


class Access:
    """The access to one process. Used on its event loop.

    Args:
        file: the keys and issuers; without one no caller is let in.
        verify: verifies a token; None if tokens are not accepted.
        weigh: gets the name and the weight of a caller.
        forget: called when callers have gone.
        clock: monotonic seconds.
        wall_clock: Unix seconds.

    Attributes:
        generation: changes when a decision may have changed.
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
        self._rejected = _RejectedToken()

    def change(self, file: AccessFile, verify: Verify | None = None) -> None:
        """Decide by this file from now on."""
        before, self._file = self._file, file
        self._verify = verify
        self._forget(file.gone_since(before))
        for each in file.keys.values():
            self._weigh(each.name, each.rules.weight)
        self.renew()

    def renew(self) -> None:
        """Make all decisions anew, as keys of issuers have changed."""
        self._tokens.clear()
        self._rejected = _RejectedToken()
        self.generation += 1

    def permit(self, fields: Iterable[tuple[bytes, bytes]], need: Need) -> Permit:
        """The permit of a request with these fields (names in lower case).

        Raises:
            Unauthenticated, NotAllowed, IssuerUnknown.
        """
        return Permit(self, credential_in(fields), need)

    def principal(self, credential: bytes) -> Principal:
        """The principal of a credential. Raises Unauthenticated, NotAllowed, IssuerUnknown."""
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
            self._rejected = _RejectedToken(
                digest, self.clock() + _REJECTED_S, (str(error), error.denied, error.caller)
            )
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


class _RejectedToken(NamedTuple):
    """An invalid token: its SHA-256, the end of this memory (monotonic seconds), and the arguments of the error."""

    digest: bytes = b""
    until_s: float = 0.0
    why: tuple[str, str, str] = ("", "", "")


class Permit:
    """The decision for one credential and one need. Requests with equal heads share it.

    Attributes:
        principal: the caller.
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
        """Whether the caller may use a model that its request does not name, such as one of a list."""
        return self.principal.rules.allow_model(model)

    @property
    def models(self) -> tuple[str, ...]:
        """Patterns of the names of allowed models."""
        return self.principal.rules.models

    def check_every_model(self) -> None:
        """Check a request that concerns all models. Raises NotAllowed."""
        self.principal.check(Need(None, every_model=True))

    def check_model(self, model: str) -> None:
        """Check a model that only the message names. Raises NotAllowed."""
        self.principal.check_model(model)

    def renew(self) -> None:
        """Decide anew if credentials may have changed. Raises Unauthenticated, NotAllowed, IssuerUnknown."""
        access, principal = self._access, self.principal
        if self._generation != access.generation or (principal.expires_s < inf and access.expired(principal)):
            self._generation = -1  # if this raises, the next request decides again
            self._decide()

    def use(self) -> None:
        """Count a request, or a message of a stream.

        Raises:
            Unauthenticated, NotAllowed, IssuerUnknown, RateExceeded.
        """
        self.renew()
        access, principal = self._access, self.principal
        if principal.rules.rate < inf:
            access.rates.take(principal, access.clock())

    def __repr__(self) -> str:
        return f"<Permit {self.principal.name}>"
