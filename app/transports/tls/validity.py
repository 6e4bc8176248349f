"""When certificates are valid, by their own words: Python's ssl tells that of a peer's certificate only.

Of a certificate this reads the one field that says it (RFC 5280, section 4.1); OpenSSL checks all of it.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

# Tags of DER (X.690, section 8).
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18

#: Two digits of a year from this one on are of the last century (RFC 5280, section 4.1.2.5.1).
_LAST_CENTURY = 50


class NotACertificate(Exception):
    """The text says what is there instead, to be read behind a name."""


def certificates_in(text: bytes) -> list[str]:
    """The certificates, in PEM. Anything may stand between them (RFC 7468, section 2), such as names in UTF-8."""
    return _PEM.findall(text.decode("ascii", "replace"))


def latest_use_s(text: bytes) -> float:
    """Unix seconds at which the first of the certificates in this PEM text ends to be valid. Raises NotACertificate."""
    return min(ends for _, ends in _validities(text))


def earliest_use_s(text: bytes) -> float:
    """Unix seconds from which on all of the certificates in this PEM text are valid. Raises NotACertificate."""
    return max(begins for begins, _ in _validities(text))


def _validities(text: bytes) -> list[tuple[float, float]]:
    """The begin and the end of each certificate's validity, in seconds since 1970. Raises NotACertificate."""
    blocks = certificates_in(text)
    if not blocks:
        raise NotACertificate("has no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    try:
        return [_validity_s(ssl.PEM_cert_to_DER_cert(each)) for each in blocks]
    except (ValueError, IndexError):
        raise NotACertificate("has a certificate that cannot be read") from None


def _validity_s(certificate: bytes) -> tuple[float, float]:
    """The begin and the end of a certificate's validity, in seconds since 1970. Raises ValueError, IndexError."""
    _, content, _ = _element(certificate, 0, _SEQUENCE)
    _, to_be_signed, _ = _element(content, 0, _SEQUENCE)

    # 1. version, where there is one; serialNumber; signature; issuer.
    tag, _, at = _element(to_be_signed, 0)
    for _ in range(3 if tag == _VERSION else 2):
        _, _, at = _element(to_be_signed, at)

    # 2. validity: notBefore, notAfter.
    _, validity, _ = _element(to_be_signed, at, _SEQUENCE)
    begins_tag, begins, at = _element(validity, 0)
    ends_tag, ends, _ = _element(validity, at)
    return _seconds(begins_tag, begins.decode("ascii")), _seconds(ends_tag, ends.decode("ascii"))


def _element(der: bytes, at: int, expected: int = -1) -> tuple[int, bytes, int]:
    """The tag and the content of the element at this place, and where the next one begins."""
    tag, size, at = der[at], der[at + 1], at + 2
    if size & 0x80:  # the next bytes say it
        digits = size & 0x7F
        size, at = int.from_bytes(der[at : at + digits], "big"), at + digits
    if expected not in (-1, tag) or at + size > len(der):
        raise ValueError("not the element that is expected")
    return tag, der[at : at + size], at + size


def _seconds(tag: int, text: str) -> float:
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _LAST_CENTURY else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
