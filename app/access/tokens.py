"""Tokens: JSON Web Tokens of issuers (RFC 7519, as RFC 9068 has them for access), verified by PyJWT.

Imported only where the access file has issuers: it needs the extra `jwt`. The rules of RFC 8725:

- The file lists the algorithms. None takes a shared secret, and `none` is not among them (3.1).
- The key comes from the issuer's set, by `kid`; a key for one algorithm serves no other (3.1).
- Issuer and audience are compared (3.8, 3.9); a token without an end is not accepted.
- No URL in a token is fetched: no `jku`, no `x5u` (3.10).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import jwt

from app.access.access_file import Issuer
from app.access.key_sets import KeySet
from app.access.rules import ISSUED, Principal, Rules
from app.core.errors import IssuerUnknown, NotAllowed, Unauthenticated

logger = logging.getLogger(__name__)

#: Seconds by which clocks may differ. Chosen.
LEEWAY_S = 30.0

#: The most letters of a subject, which becomes a name in logs. Chosen.
_MOST_LETTERS = 128

_INVALID = "The token is not valid here"


class Tokens:
    """The verification of tokens of known issuers.

    Args:
        key_sets: by the name of the issuer.
    """

    def __init__(self, issuers: Mapping[str, Issuer], key_sets: Mapping[str, KeySet]) -> None:
        self._issuers = issuers
        self._key_sets = key_sets

    def verify(self, token: bytes) -> Principal:
        """The principal of a token.

        Raises:
            Unauthenticated, NotAllowed: the token is not valid, or gives no rights here.
            IssuerUnknown: the issuer's keys could not be fetched yet.
        """
        text = token.decode("ascii", errors="replace")
        try:
            # 1. The unverified claims choose the issuer and the algorithm, and decide nothing else.
            header = jwt.get_unverified_header(text)
            said: dict[str, Any] = jwt.decode(text, options={"verify_signature": False})
            issuer = self._issuers.get(str(said.get("iss", "")))
            if issuer is None or header.get("alg") not in issuer.algorithms:
                raise Unauthenticated(_INVALID)

            # 2. The token is the issuer's, for this server, and still valid.
            claims: dict[str, Any] = jwt.decode(
                text,
                self._key(issuer, header),
                algorithms=[header["alg"]],
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            end_s = float(claims["exp"]) + LEEWAY_S
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired", "expired") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise Unauthenticated(_INVALID) from None

        # 3. Its rules.
        name = self._name(claims["sub"], issuer)
        return Principal(name, _rules(issuer, claims, name), end_s)

    def _name(self, subject: str, issuer: Issuer) -> str:
        """The principal's name. Equal subjects of two issuers are different callers (RFC 7519, section 4.1.2)."""
        name = f"{ISSUED}{_shown(subject)}"
        return name if len(self._issuers) == 1 else f"{name}@{issuer.issuer}"

    def _key(self, issuer: Issuer, header: Mapping[str, Any]) -> Any:
        """The key that verifies a token. Raises Unauthenticated, IssuerUnknown."""
        key_set = self._key_sets[issuer.issuer]
        if not key_set.known:
            raise IssuerUnknown("Tokens cannot be checked yet: the keys of their issuer could not be fetched")
        key = key_set.find(header.get("kid"), header["alg"])
        if key is None:
            key_set.want()
            raise Unauthenticated(_INVALID)
        return key


def _shown(subject: str) -> str:
    """The subject as a name in logs and errors: issuers choose its letters."""
    letters = [each if each.isprintable() else "?" for each in subject[:_MOST_LETTERS]]
    return "".join(letters)


def _rules(issuer: Issuer, claims: Mapping[str, Any], name: str) -> Rules:
    """The rules of the first group of the file that the token names. Raises NotAllowed."""
    named = _groups(claims, issuer.claim)
    for group, rules in issuer.groups.items():
        if group in named:
            return rules
    raise NotAllowed(f"{name} is in no group that has rights here", name)


def _groups(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """The groups in a claim: a list of texts, or one text with spaces between groups (RFC 8693, section 4.2)."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return frozenset(found.split())
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
