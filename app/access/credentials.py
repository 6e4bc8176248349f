"""The credential of a request: an API key or a token in its fields.

`Authorization: Bearer CREDENTIAL` (RFC 6750, section 2.1) or `x-api-key: CREDENTIAL`; in gRPC, metadata of these names.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.core.errors import Unauthenticated

#: The fields that may carry a credential, in lower case.
FIELDS = frozenset({b"authorization", b"x-api-key"})

_SCHEME = b"bearer"


def credential_in(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The one credential among the fields of a request; names in lower case.

    Raises:
        Unauthenticated: there is none, more than one, or one of another scheme. The text never shows it.
    """
    found = {_of_field(name, value) for name, value in fields if name in FIELDS}
    if not found:
        raise Unauthenticated(
            "This needs a credential: Authorization: Bearer CREDENTIAL, or x-api-key: CREDENTIAL", "missing"
        )
    if len(found) > 1:
        raise Unauthenticated("A request has one credential, not several that differ", "malformed")
    (credential,) = found
    return credential


def _of_field(name: bytes, value: bytes) -> bytes:
    if name == b"authorization":
        scheme, _, value = value.strip().partition(b" ")
        if scheme.lower() != _SCHEME:
            raise Unauthenticated("Authorization has another scheme; expected Bearer", "malformed")
    credential = value.strip()
    if not credential:
        raise Unauthenticated("The credential is empty", "malformed")
    return credential
